package badger

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/troupe-dev/troupe/persistence"
)

// A troupe that meets a store of a later form must not take for damage what it cannot read: it would offer to repair that. So a store says its
// form, in the name of a folder among its tables. Who knows of forms refuses one that is above his own. Who is older still (form 1 said nothing)
// takes the folder for a table that is not listed, fails to read it, and refuses the store with that, also to repair it. The database leaves
// folders alone.

// format is the form of what is written: 2 since what the records of a commit have in common is written once.
const format = 2

// formatBase is the number of the folder of form 0, as a table's: no database makes as many.
const formatBase uint64 = 4294900000

// formatText stands in the folder, for people.
const formatText = `This folder says which troupe can read the store. One that fails with "is a directory" here is too old for it: use a newer one.
Without this folder an older troupe calls the store damaged, and its repair destroys what it cannot read.
`

func formatFolder(n uint64) string { return tableName(formatBase + n) }

// formatOf is the form that a folder in the database's directory stands for, 0 when it is something else.
func formatOf(e fs.DirEntry) uint64 {
	n, err := strconv.ParseUint(strings.TrimSuffix(e.Name(), tableSuffix), 10, 64)
	if err != nil || !e.IsDir() || n <= formatBase || e.Name() != formatFolder(n-formatBase) {
		return 0
	}
	return n - formatBase
}

// checkFormat refuses a form that is above ours.
func checkFormat(n uint64) error {
	if n > format {
		return fmt.Errorf("a newer troupe has written to the store (it has format %d, this troupe reads %d): use that one: %w", n, format, persistence.ErrUnavailable)
	}
	return nil
}

// writeFormat makes a database's directory say its form, durably: before anything of that form is written.
func writeFormat(db string) error {
	dir := filepath.Join(db, formatFolder(format))
	readme := filepath.Join(dir, "README")
	if text, err := os.ReadFile(readme); err == nil && string(text) == formatText {
		return nil
	}
	err := os.MkdirAll(dir, 0o700)
	if err = errors.Join(err, syncDir(db)); err == nil {
		err = os.WriteFile(readme, []byte(formatText), 0o600) // last: where it stands, all this was done
	}
	if err != nil {
		return fmt.Errorf("write down the format of the store: %w", err)
	}
	return nil
}
