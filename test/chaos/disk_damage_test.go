package chaos

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model/script"
)

// damage is something that happens to a file of a closed data directory.
type damage struct {
	name string
	do   func(file string) error
}

func damages() []damage {
	size := func(file string) int64 {
		info, err := os.Stat(file)
		if err != nil {
			return 0
		}
		return info.Size()
	}
	flip := func(at func(size int64) int64) func(string) error {
		return func(file string) error {
			b, err := os.ReadFile(file)
			if err != nil || len(b) == 0 {
				return errors.Join(err, errNothing)
			}
			used := int64(len(bytes.TrimRight(b, "\x00"))) // a log has its room in advance
			if used == 0 {
				return errNothing
			}
			b[min(at(used), used-1)] ^= 0x10
			return os.WriteFile(file, b, 0o600)
		}
	}
	cut := func(at func(size int64) int64) func(string) error {
		return func(file string) error {
			if size(file) == 0 {
				return errNothing
			}
			return os.Truncate(file, at(size(file)))
		}
	}
	return []damage{
		{"removed", os.Remove},
		{"emptied", cut(func(int64) int64 { return 0 })},
		{"cut in half", cut(func(n int64) int64 { return n / 2 })},
		{"cut by a byte", cut(func(n int64) int64 { return n - 1 })},
		{"a bit at the start", flip(func(int64) int64 { return 0 })},
		{"a bit in the middle", flip(func(n int64) int64 { return n / 2 })},
		{"a bit at the end", flip(func(n int64) int64 { return n - 1 })},
		{"other bytes", func(file string) error {
			return os.WriteFile(file, bytes.Repeat([]byte("rubbish"), int(min(size(file), 1<<20))/7+1), 0o600)
		}},
		{"a folder", func(file string) error { return errors.Join(os.Remove(file), os.Mkdir(file, 0o700)) }},
	}
}

// errNothing: an empty file cannot be damaged in that way.
var errNothing = errors.New("there is nothing to damage")

// TestDamagedFilesAreNamedAndNeverBelieved damages each file of a data directory in each way. Every command says what
// is wrong and ends with its code, or the damage does not matter and everything is as it was.
func TestDamagedFilesAreNamedAndNeverBelieved(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprintf("killed=%v", killed), func(t *testing.T) {
			m := newMachine(t)
			m.serve(gates, script.ServeOptions{})
			m.keepIn(m.root + "/whole")
			whole := m.data()
			m.want(0, prompt("hello")...)
			if killed {
				m.blocked("begun-one", prompt("block one")...).kill()
				m.write("go", "")
			} else {
				m.want(0, prompt("hello again")...)
			}
			_ = os.Remove(whole + "/store/db.ballast") // it is large, and holds nothing
			before := m.seen(m.copied(whole))          // looking at it closes it in order
			for i, file := range m.files(whole) {
				for j, d := range damages() {
					if testing.Short() && (i+j)%12 != 0 {
						continue
					}
					t.Run(file+" "+d.name, func(t *testing.T) {
						m.damaged(t, d, whole, file, before)
					})
				}
			}
		})
	}
}

// damaged damages one file of a copy and looks at what the program makes of it.
func (m *machine) damaged(t *testing.T, d damage, whole, file string, before map[string]string) {
	n := &machine{t: t, program: m.program, root: m.root, home: m.home, folder: m.folder, temp: m.temp, env: m.env}
	data := n.copied(whole)
	if err := d.do(filepath.Join(data, file)); errors.Is(err, errNothing) {
		return
	} else if err != nil {
		t.Fatal(err)
	}
	verified := n.told(data, "verify")
	t.Logf("verify %.300s", verified)
	for args, was := range before {
		e := n.told(data, strings.Fields(args)...)
		switch {
		case e.code == 0 && verified.code == 0 && e.out != was:
			t.Errorf("%q is believed and says\n%s\nbefore that it was\n%s", args, e.out, was)
		case e.code == 0 && verified.code == 74:
			t.Errorf("%q is answered, verify is not: %s", args, verified)
		}
	}
	for _, s := range sessionsIn(t, before) {
		if e := n.told(data, "run", "-s", s); e.code == 0 && verified.code == 0 {
			if v := n.told(data, "verify"); v.code != 0 {
				t.Errorf("after a turn: %s", v)
			}
		}
	}
}

// copied is a fresh copy of a data directory.
func (m *machine) copied(data string) string {
	m.t.Helper()
	to := m.root + "/copy"
	if err := os.RemoveAll(to); err != nil {
		m.t.Fatal(err)
	}
	if out, err := exec.Command("cp", "-a", "--sparse=always", data, to).CombinedOutput(); err != nil {
		m.t.Fatalf("copy: %v: %s", err, out)
	}
	return to
}

// told runs a command on a data directory and checks that it ends with words and not with a trace.
func (m *machine) told(data string, args ...string) ended {
	m.t.Helper()
	e := m.run(append(args, "--data", data)...)
	named := strings.Contains(e.err, data) || args[0] == "verify" && e.code == 1 && strings.Contains(e.out, "findings")
	switch {
	case strings.Contains(e.err, "goroutine ") || strings.Contains(e.err, "panic"):
		m.t.Errorf("%q: %s", args, e)
	case e.code == 0:
	case e.code == 1 && strings.Contains(e.err, "unable to open: "+data): // the database ends the process itself
	case e.code == 78 && strings.Contains(e.err, "or KEYREGISTRY is damaged"): // which cannot be told from a store with another key
	case !named || e.code != 74 && e.code != 1 && e.code != 66:
		m.t.Errorf("%q does not say what is wrong: %s", args, e)
	}
	return e
}

// seen is what commands show of a data directory.
func (m *machine) seen(data string) map[string]string {
	m.t.Helper()
	all := map[string]string{"ls sessions -o json": m.want(0, "ls", "sessions", "-o", "json", "--data", data).out}
	for _, s := range list[[]messages.SessionJSON](m, "ls", "sessions", "--data", data) {
		all["show "+s.ID+" -o json"] = m.want(0, "show", s.ID, "-o", "json", "--data", data).out
	}
	return all
}

func sessionsIn(t *testing.T, seen map[string]string) (ids []string) {
	t.Helper()
	for args := range seen {
		if f := strings.Fields(args); f[0] == "show" {
			ids = append(ids, f[1])
		}
	}
	return ids
}

// files are those of a data directory, by their names in it.
func (m *machine) files(data string) (names []string) {
	m.t.Helper()
	err := filepath.WalkDir(data, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			names = append(names, strings.TrimPrefix(path, data+"/"))
		}
		return err
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return names
}
