package config

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

//go:embed starter.yaml
var starter string

// Starter is a commented configuration file in which nothing is set.
func Starter() string { return starter }

// WriteStarter writes Starter to a file that must not exist yet, with mode 0600 in folders that
// are made as needed. An existing file is never touched; the error is then fs.ErrExist.
func WriteStarter(name string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return fmt.Errorf("make the folder of %s: %w", name, err)
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists and is left as it is: %w", name, fs.ErrExist)
	}
	if err != nil {
		return fmt.Errorf("create %s: %w", name, err)
	}
	_, err = f.WriteString(starter)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
