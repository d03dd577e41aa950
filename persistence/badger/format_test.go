package badger

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/persistence"
)

func saysFormat(path string) bool { return filepath.Base(path) == formatFolder(format) }

// formatted is a store that was closed in order, of which somebody of a form says that he has written to it; 0: nobody says so.
func formatted(t *testing.T, of uint64) string {
	t.Helper()
	dir := t.TempDir()
	s := openIn(t, dir)
	appendTo(t, s, "wrk/a", "one", 3)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	ours := filepath.Join(dir, "db", formatFolder(format))
	if _, err := os.Stat(ours); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(ours); err != nil {
		t.Fatal(err)
	}
	if of > 0 {
		if err := os.Mkdir(filepath.Join(dir, "db", formatFolder(of)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestAStoreOfANewerTroupeIsRefusedAndNotRepaired(t *testing.T) {
	dir := formatted(t, format+1)
	before, err := readFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, persistence.ErrUnavailable) || errors.Is(err, persistence.ErrCorrupt) || !strings.Contains(err.Error(), "a newer troupe has written to the store") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err = Open(context.Background(), Options{Dir: dir, Ballast: -1})
	refused("open", err)
	_, err = Open(context.Background(), Options{Dir: dir, Ballast: -1, AcceptLoss: true})
	refused("open with loss", err)
	_, err = Repair(context.Background(), Options{Dir: dir, Ballast: -1}, RepairOptions{Accept: true, Now: fixedNow})
	refused("repair", err)
	after, err := readFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range before.content {
		if string(after.content[name]) != string(b) {
			t.Errorf("%s was changed", name)
		}
	}
}

// A troupe of before there were forms reads a table that is not listed, to know whether it should be, and refuses the store when it cannot.
func TestAStoreSaysItsFormToWhoIsTooOldToAsk(t *testing.T) {
	dir := formatted(t, 0)
	folder := filepath.Join(dir, "db", formatFolder(format))
	s := openIn(t, dir)
	if err := s.db.Flatten(1); err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadFile(folder); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the folder is read as a table: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	there := func(when string) {
		t.Helper()
		if text, err := os.ReadFile(filepath.Join(folder, "README")); err != nil || !strings.Contains(string(text), "use a newer one") {
			t.Errorf("%s: %q, %v", when, text, err)
		}
	}
	there("closed")
	if err := setAside(dir); err != nil {
		t.Fatal(err)
	}
	if err := putBack(dir); err != nil {
		t.Fatal(err)
	}
	there("set aside and put back")
	if err := os.Remove(glob(t, dir, "db/*.sst")[0]); err != nil {
		t.Fatal(err)
	}
	r, err := Repair(context.Background(), Options{Dir: dir, Ballast: -1}, RepairOptions{Accept: true, Now: fixedNow})
	if err != nil || r.Nothing() {
		t.Fatalf("repaired %+v: %v", r, err)
	}
	there("repaired")
}

func TestAStoreOfBeforeThereWereFormsIsOpened(t *testing.T) {
	dir := formatted(t, 0)
	s := openIn(t, dir)
	appendTo(t, s, "wrk/a", "one", 2)
	if sum, err := s.checked(context.Background()); err != nil || sum.Records != 5 {
		t.Errorf("%+v, %v", sum, err)
	}
}

// An opening may be cut off behind the folder, or the power within its text.
func TestAFormatThatWasHalfWrittenIsWrittenByTheNextOpening(t *testing.T) {
	dir := formatted(t, format)
	readme := filepath.Join(dir, "db", formatFolder(format), "README")
	for _, left := range []func() error{func() error { return nil }, func() error { return os.Truncate(readme, 0) }} {
		if err := left(); err != nil {
			t.Fatal(err)
		}
		if err := openIn(t, dir).Close(); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(readme); err != nil || string(text) != formatText {
			t.Fatalf("%q, %v", text, err)
		}
	}
}
