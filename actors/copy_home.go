package actors

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
)

// copyHome copies the files of a session's own workspace: regular ones and folders, as they are now. What is no file,
// links among it, is left out. A session without a folder of its own yet has none afterwards either.
func copyHome(from, to string) error {
	src, err := os.OpenRoot(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open the workspace to be copied: %w", err)
	}
	defer func() { _ = src.Close() }() // it was only read
	if err := os.MkdirAll(to, 0o700); err != nil {
		return fmt.Errorf("make the workspace of the copy: %w", err)
	}
	dst, err := os.OpenRoot(to)
	if err != nil {
		return fmt.Errorf("open the workspace of the copy: %w", err)
	}
	defer func() { _ = dst.Close() }() // each file in it was closed by itself
	return fs.WalkDir(src.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed while it was copied
			return nil
		case err != nil:
			return fmt.Errorf("copy the session's own workspace: %w", err)
		case d.IsDir() && name != ".":
			return dst.Mkdir(path.Clean(name), 0o700)
		case d.Type().IsRegular():
			return copyFile(src, dst, name)
		}
		return nil
	})
}

func copyFile(src, dst *os.Root, name string) error {
	in, err := src.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("copy %s: %w", name, err)
	}
	defer func() { _ = in.Close() }() // it was only read
	info, err := in.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	out, err := dst.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return fmt.Errorf("copy %s: %w", name, err)
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
