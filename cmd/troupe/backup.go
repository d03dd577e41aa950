package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/badger"
)

// backupJSON is what `troupe backup FILE -o json` prints.
type backupJSON struct {
	File    string `json:"file"`
	Bytes   int64  `json:"bytes"`
	Commits uint64 `json:"commits"` // of the store, up to where the backup reaches
	Store   string `json:"store"`
	At      string `json:"at"`
	Since   string `json:"since,omitempty"` // the backup that it goes on from
}

func newBackup(a *app) *cobra.Command {
	var since string
	cmd := formats(&cobra.Command{
		Use:   "backup FILE|-",
		Short: "Copy what was written to a file, while work goes on",
		Long: `Copy what was written to a file, while work goes on.

The copy is of one moment, also when another process holds the data directory and its agents are at
work. With --since it holds only what changed since an earlier one; a restore takes the chain, in order.
It holds conversations, listings and timers; files of workspaces are not part of it, and it is not encrypted.
- writes to stdout: a copy that was cut off on its way is recognised when it is restored.`,
		Args: exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			loaded, err := a.load("")
			if err != nil {
				return err
			}
			var mark *messages.BackupMark
			if since != "" {
				if mark, err = badger.ReadBackup(a.path(since)); err != nil {
					return backupError(err)
				}
			}
			encrypted := loaded.Config.Data.Encryption != (config.Encryption{})
			none := func() error {
				return &exitError{code: exitMissing, what: "nothing was kept yet in " + visible(loaded.Config.Data.Dir) + ": there is nothing to back up"}
			}
			return a.look(cmd.Context(), loaded, none, func(ctx context.Context, n node) error {
				if args[0] == "-" {
					return a.backupTo(ctx, n, a.out, mark, encrypted)
				}
				return a.backupFile(ctx, n, args[0], since, mark, encrypted)
			})
		},
	}, "text", "json", "yaml")
	cmd.Flags().StringVar(&since, "since", "", "only what changed since the backup in `FILE`")
	return cmd
}

// path is a file that the command line names.
func (a *app) path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(a.cwd, name)
}

func (a *app) backupTo(ctx context.Context, n node, w io.Writer, since *messages.BackupMark, encrypted bool) error {
	if encrypted {
		a.note("troupe: the store is encrypted, the backup is not: keep it in a safe place")
	}
	m := a.meter("backing up", bytesText, nil)
	defer m.end()
	return backupError(n.Backup(ctx, m.through(w), since))
}

// backupFile writes beside the file and renames what proved to be whole.
func (a *app) backupFile(ctx context.Context, n node, name, sinceName string, since *messages.BackupMark, encrypted bool) (err error) {
	path := a.path(name)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return &exitError{code: exitInput, what: fmt.Sprintf("%s exists: a backup replaces nothing", visible(name)), hint: "name another file"}
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".part-") // mode 0600
	if err != nil {
		return fmt.Errorf("write backup: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	err = a.backupTo(ctx, n, f, since, encrypted)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	mark, err := badger.ReadBackup(f.Name())
	if err != nil {
		return backupError(err)
	}
	info, err := os.Stat(f.Name())
	if err != nil {
		return fmt.Errorf("write backup: %w", err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("write backup: %w", err)
	}
	return a.printBackup(backupJSON{
		File: name, Bytes: info.Size(), Commits: mark.GetCommits(), Store: fmt.Sprintf("%x", mark.GetStore()),
		At: time.UnixMilli(mark.GetAtUnixMs()).UTC().Format(time.RFC3339), Since: sinceName,
	})
}

func (a *app) printBackup(j backupJSON) error {
	return a.emit(j, func(w io.Writer) error {
		kind := "everything"
		if j.Since != "" {
			kind = "what changed since " + visible(j.Since)
		}
		_, err := fmt.Fprintf(w, "%s: %s, %s, up to commit %d\n", visible(j.File), kind, bytesText(j.Bytes), j.Commits)
		return err
	})
}

// backupError gives what is wrong with a backup its code.
func backupError(err error) error {
	var own *exitError
	switch {
	case err == nil, errors.As(err, &own):
		return err
	case errors.Is(err, badger.ErrBackup):
		return &exitError{code: exitInput, what: err.Error(), hint: "nothing was written", err: err}
	case errors.Is(err, persistence.ErrCorrupt):
		return &exitError{code: exitIO, what: err.Error(), hint: "nothing was written", err: err}
	}
	return err
}
