package workspace_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/troupe-dev/troupe/workspace"
)

func TestAFolderIsCalledByItsNameWhereverThatLeads(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(top, "link")
	if err := os.Symlink(top, link); err != nil {
		t.Skipf("links cannot be made here: %v", err)
	}
	got, err := workspace.Called(link)
	if err != nil {
		t.Fatal(err)
	}
	a, err := workspace.Parse(got, "")
	if err != nil || a.Path != filepath.ToSlash(link) {
		t.Fatalf("%s: %v, %v", got, a, err)
	}
	found, path, err := workspace.Local(filepath.FromSlash(a.Path))
	if err != nil || path != top {
		t.Errorf("it leads to %v, %s, %v", found, path, err)
	}
	if _, err := workspace.Called(filepath.Join(top, "missing")); err != nil {
		t.Errorf("whether it is there, whoever opens it looks: %v", err)
	}
}

// TestAFolderWhoseNameNoAddressHoldsIsCalledByWhereItLeads: a space at the end of a name is in no address.
func TestAFolderWhoseNameNoAddressHoldsIsCalledByWhereItLeads(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(top, "link ")
	if err := os.Symlink(top, link); err != nil {
		t.Skipf("links cannot be made here: %v", err)
	}
	if got, err := workspace.Called(link); err != nil || got != "local:"+filepath.ToSlash(top) {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := workspace.Called(filepath.Join(top, "missing ")); err == nil {
		t.Error("a folder without an address has one")
	}
	if _, err := workspace.Called(""); err == nil {
		t.Error("no name is the folder that the process runs in")
	}
}
