package badger

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Opening a database that does not end cleanly changes it: logs are cut where they stop to read.
// Before that its directory is set aside, and put back when the opening refuses, so that a refusal
// changes nothing and a repair finds every byte. A copy that a process left behind, because the opening killed it,
// is put back by the next one: nothing was acknowledged meanwhile.

const (
	asideDir   = "db.aside"
	discardDir = "db.discard"
)

// setAside copies the database: tables, which never change, as links.
func setAside(dir string) error {
	from, part := filepath.Join(dir, "db"), filepath.Join(dir, asideDir+".part")
	if err := os.RemoveAll(part); err != nil {
		return fmt.Errorf("set the database aside: %w", err)
	}
	if err := copyDatabase(from, part); err != nil {
		return fmt.Errorf("set the database aside: %w", err)
	}
	if err := os.Rename(part, filepath.Join(dir, asideDir)); err != nil {
		return fmt.Errorf("set the database aside: %w", err)
	}
	return syncDir(dir)
}

func copyDatabase(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	for _, e := range entries {
		source, target := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		if formatOf(e) > 0 {
			if err := writeFormat(to); err != nil {
				return err
			}
		}
		if !e.Type().IsRegular() {
			continue
		}
		if strings.HasSuffix(e.Name(), tableSuffix) && os.Link(source, target) == nil {
			continue
		}
		if err := copySparse(source, target); err != nil {
			return err
		}
	}
	return syncDir(to)
}

// copySparse copies a file durably; the zeros at its end take no room.
func copySparse(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(bytes.TrimRight(b, "\x00"))
	if err == nil {
		err = f.Truncate(int64(len(b)))
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// putBack replaces the database by what was set aside, if anything was.
func putBack(dir string) error {
	aside, db, discard := filepath.Join(dir, asideDir), filepath.Join(dir, "db"), filepath.Join(dir, discardDir)
	if _, err := os.Stat(aside); errors.Is(err, fs.ErrNotExist) {
		return os.RemoveAll(discard)
	}
	if _, err := os.Stat(db); err == nil {
		if err := os.RemoveAll(discard); err != nil {
			return fmt.Errorf("put the database back: %w", err)
		}
		if err := os.Rename(db, discard); err != nil {
			return fmt.Errorf("put the database back: %w", err)
		}
	}
	if err := os.Rename(aside, db); err != nil {
		return fmt.Errorf("put the database back: %w", err)
	}
	if err := syncDir(dir); err != nil {
		return err
	}
	return os.RemoveAll(discard)
}

// dropAside forgets what was set aside: the opening has succeeded.
func dropAside(dir string) error {
	aside, discard := filepath.Join(dir, asideDir), filepath.Join(dir, discardDir)
	if _, err := os.Stat(aside); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := os.Rename(aside, discard); err != nil { // in one step: half of it must never be put back
		return fmt.Errorf("drop what was set aside: %w", err)
	}
	if err := syncDir(dir); err != nil {
		return err
	}
	return os.RemoveAll(discard)
}

// syncDir makes the names in a folder durable.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" { // which cannot, and does not need it
		return nil
	}
	f, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	if err = errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}
