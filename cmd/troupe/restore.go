package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/persistence/badger"
)

// restoreJSON is what `troupe restore -o json` prints.
type restoreJSON struct {
	Dir     string `json:"dir"`
	Commits uint64 `json:"commits"`
	At      string `json:"at"` // of the backup
	Streams int64  `json:"streams"`
	Records int64  `json:"records"`
}

func newRestore(a *app) *cobra.Command {
	var to string
	cmd := formats(&cobra.Command{
		Use:   "restore FILE... --to DIR",
		Short: "Make a data directory of backups",
		Long: `Make a data directory of backups.

The first file holds everything, each one after it goes on from the one before. They are checked from
beginning to end, then the store is built beside its place and checked again: DIR, which must be empty or not
exist, gets a whole store or nothing. The restored store is another one: work that goes on in the first does
not get into its way.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exactly("FILE")(cmd, args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if to == "" {
				e := usage("%s: --to DIR is missing", cmd.CommandPath())
				e.hint = "name the data directory to make"
				return e
			}
			loaded, err := a.load("")
			if err != nil {
				return err
			}
			o, err := a.storeOptions(cmd.Context(), loaded)
			if err != nil {
				return err
			}
			paths := make([]string, len(args))
			for i, name := range args {
				paths[i] = a.path(name)
			}
			dir := a.path(to)
			made, err := checkTarget(dir)
			if err != nil {
				return err
			}
			m := a.meter("restoring", func(n int64) string { return fmt.Sprintf("%d entries", n) }, nil)
			defer m.end()
			o.Dir = troupe.StoreDir(dir)
			r, err := badger.Restore(cmd.Context(), o, paths, func(n uint64) { m.done.Store(int64(n)) })
			if err != nil {
				if made {
					_ = os.Remove(dir) // was not there before
				}
				return backupError(err)
			}
			return a.printRestored(restoreJSON{
				Dir: to, Commits: r.Mark.GetCommits(), At: time.UnixMilli(r.Mark.GetAtUnixMs()).UTC().Format(time.RFC3339),
				Streams: r.Summary.Streams, Records: r.Summary.Records,
			})
		},
	}, "text", "json", "yaml")
	cmd.Flags().StringVar(&to, "to", "", "data `DIR` to make")
	return cmd
}

// checkTarget refuses a folder that holds anything; made says that there was none.
func checkTarget(dir string) (made bool, err error) {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("restore: %w", err)
	case len(entries) > 0:
		return false, &exitError{
			code: exitInput, what: fmt.Sprintf("%s is not empty: it holds %s", visible(dir), visible(entries[0].Name())),
			hint: "a restore replaces nothing: name a folder that is empty or does not exist",
		}
	}
	return false, nil
}

func (a *app) printRestored(j restoreJSON) error {
	return a.emit(j, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%s: %d journals, %d records, as of %s\nuse it with: --data %s\n", visible(j.Dir), j.Streams, j.Records, j.At, visible(j.Dir))
		return err
	})
}
