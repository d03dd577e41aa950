package badger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

func backUp(t *testing.T, s *Store, path string, since *messages.BackupMark) *messages.BackupMark {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	mark, err := s.Backup(context.Background(), f, since)
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return mark
}

// restored opens what a restore makes of backups.
func restored(t *testing.T, paths ...string) *Store {
	t.Helper()
	to := filepath.Join(t.TempDir(), "to")
	if _, err := Restore(context.Background(), Options{Dir: to, Ballast: -1}, paths, nil); err != nil {
		t.Fatal(err)
	}
	return openIn(t, to)
}

func wantSame(t *testing.T, got, want *Store) {
	t.Helper()
	have, errs := dump(got)
	wanted, missing := dump(want)
	for what, err := range errs {
		if missing[what] == nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, text := range wanted {
		if have[what] != text {
			t.Errorf("%s: %q, want %q", what, have[what], text)
		}
	}
	if f := findings(t, got); len(f) != 0 {
		t.Errorf("found %+v", f)
	}
}

func TestABackupRestoresToTheSameAnswersInAnotherStore(t *testing.T) {
	s := openIn(t, t.TempDir())
	flipStore(t, s)
	path := filepath.Join(t.TempDir(), "backup")
	mark := backUp(t, s, path, nil)
	again := restored(t, path)
	wantSame(t, again, s)
	if again.Boot() <= s.Boot() || bytes.Equal(again.id, s.id) {
		t.Errorf("the restored store has boot %d and id %x, the other %d and %x", again.Boot(), again.id, s.Boot(), s.id)
	}
	l, err := again.Claim(context.Background(), "wrk/a", "test")
	if err != nil || l.Epoch>>32 <= s.Boot() || l.Next != 7 {
		t.Errorf("claim in the restored store: %+v, %v", l, err)
	}
	if _, err := again.Backup(context.Background(), &bytes.Buffer{}, mark); !errors.Is(err, persistence.ErrInvalid) {
		t.Errorf("a backup of the restored store since one of the other: %v", err)
	}
}

// A backup is of one moment, whatever is appended while it is written.
func TestABackupIsOfOneMoment(t *testing.T) {
	ctx := context.Background()
	s := openIn(t, t.TempDir())
	stop, stopped := make(chan struct{}), make(chan int, 4)
	for i := range cap(stopped) {
		go func() {
			n := 0
			defer func() { stopped <- n }()
			l, err := s.Claim(ctx, fmt.Sprint("wrk/", i), "test")
			for err == nil {
				select {
				case <-stop:
					return
				default:
				}
				_, err = s.Append(ctx, persistence.Batch{Lease: l, Expect: l.Next, Session: "s", Records: []*messages.Record{textRecord(l.Stream, l.Next)}})
				l.Next++
				n++
			}
			t.Error(err)
		}()
	}
	dir := t.TempDir()
	var chain []string
	var mark *messages.BackupMark
	for i := range 4 {
		before, err := s.Cursor(ctx, "s")
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, fmt.Sprint(i))
		mark = backUp(t, s, path, mark)
		chain = append(chain, path)
		again := restored(t, chain...)
		if f := findings(t, again); len(f) != 0 {
			t.Errorf("after %d backups: found %+v", i+1, f)
		}
		after, err := again.Cursor(ctx, "s")
		if err != nil || after < before {
			t.Errorf("after %d backups: cursor %d, %v; %d was acknowledged before", i+1, after, err, before)
		}
	}
	close(stop)
	for range cap(stopped) {
		if <-stopped == 0 {
			t.Error("a writer wrote nothing: the test shows nothing")
		}
	}
}

func TestLaterBackupsCarryWhatWasRemoved(t *testing.T) {
	ctx := context.Background()
	s := openIn(t, t.TempDir())
	flipStore(t, s)
	dir := t.TempDir()
	chain := []string{filepath.Join(dir, "0"), filepath.Join(dir, "1"), filepath.Join(dir, "2")}
	mark := backUp(t, s, chain[0], nil)
	l, err := s.Claim(ctx, "wrk/d", "test")
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Append(ctx, persistence.Batch{
		Lease: l, Expect: 1, Session: "two", Records: []*messages.Record{textRecord("wrk/d", 1)},
		Index:  []persistence.IndexOp{{Key: "ses/one", Delete: true}, {Key: "ses/two", Value: []byte("changed")}},
		Timers: []persistence.TimerOp{{ID: "t1", Delete: true}, {ID: "t2", Due: time.Unix(7, 0)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	mark = backUp(t, s, chain[1], mark)
	backUp(t, s, chain[2], mark) // nothing happened since
	wantSame(t, restored(t, chain...), s)

	small, err := os.Stat(chain[2])
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.Stat(chain[0])
	if err != nil || small.Size()*3 > whole.Size() {
		t.Errorf("a later backup without news has %d bytes, the first %d, %v", small.Size(), whole.Size(), err)
	}
}

func TestAChainWithAGapOrInTheWrongOrderIsRefused(t *testing.T) {
	s := openIn(t, t.TempDir())
	dir := t.TempDir()
	var chain []string
	var mark *messages.BackupMark
	for i := range 3 {
		appendTo(t, s, "wrk/a", "s", 2)
		chain = append(chain, filepath.Join(dir, fmt.Sprint(i)))
		mark = backUp(t, s, chain[i], mark)
	}
	other := openIn(t, t.TempDir())
	appendTo(t, other, "wrk/a", "s", 2)
	foreign := filepath.Join(dir, "foreign")
	backUp(t, other, foreign, nil)
	for what, paths := range map[string][]string{
		"nothing":      {},
		"no beginning": chain[1:],
		"a gap":        {chain[0], chain[2]},
		"wrong order":  {chain[0], chain[2], chain[1]},
		"one twice":    {chain[0], chain[1], chain[1]},
		"two whole":    {chain[0], chain[0]},
		"another's":    {foreign, chain[1]},
	} {
		to := filepath.Join(t.TempDir(), "to")
		_, err := Restore(context.Background(), Options{Dir: to, Ballast: -1}, paths, nil)
		if !errors.Is(err, ErrBackup) {
			t.Errorf("%s: %v", what, err)
		}
		wantNothing(t, filepath.Dir(to))
	}
	wantSame(t, restored(t, chain...), s)
}

func wantNothing(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 0 {
		t.Errorf("a refused restore leaves %v, %v", left, err)
	}
}

func TestADamagedBackupIsRefusedWhereItIsDamaged(t *testing.T) {
	s := openIn(t, t.TempDir())
	flipStore(t, s)
	dir := t.TempDir()
	good := filepath.Join(dir, "good")
	backUp(t, s, good, nil)
	b, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(dir, "bad")
	nobody := backupParts{header: func(*messages.BackupHeader) error { return nil }, part: func(*messages.BackupPart) error { return nil }}
	refuse := func(what string, content []byte) {
		t.Helper()
		if _, err := readBackup(bytes.NewReader(content), nobody); !errors.Is(err, ErrBackup) {
			t.Errorf("%s: %v", what, err)
		}
	}
	step := 1
	if testing.Short() {
		step = 37
	}
	for at := 0; at < len(b); at += step {
		flipped := bytes.Clone(b)
		flipped[at] ^= 1 << (at % 8)
		refuse(fmt.Sprint("flip at ", at), flipped)
		refuse(fmt.Sprint("cut at ", at), b[:at])
	}
	refuse("garbage behind the end", append(bytes.Clone(b), 0))
	refuse("twice", append(bytes.Clone(b), b...))
	refuse("garbage", []byte(strings.Repeat("x", 1000)))
	var newer bytes.Buffer
	w := newFrameWriter(&newer)
	if err := w.begin(&messages.BackupHeader{Format: backupFormat + 1, Mark: &messages.BackupMark{}}); err != nil {
		t.Fatal(err)
	}
	if err := w.end(&messages.BackupTrailer{Mark: &messages.BackupMark{}}); err != nil {
		t.Fatal(err)
	}
	refuse("a newer format", newer.Bytes())
	if err := os.WriteFile(bad, newer.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "to")
	if _, err := Restore(context.Background(), Options{Dir: to, Ballast: -1}, []string{bad}, nil); !errors.Is(err, ErrBackup) || !strings.Contains(err.Error(), fmt.Sprint("format ", backupFormat+1)) {
		t.Errorf("restore of a newer format: %v", err)
	}
	wantNothing(t, filepath.Dir(to))
}

func TestRestoreRefusesATargetThatHoldsAnything(t *testing.T) {
	s := openIn(t, t.TempDir())
	appendTo(t, s, "wrk/a", "s", 2)
	path := filepath.Join(t.TempDir(), "backup")
	backUp(t, s, path, nil)
	to := t.TempDir()
	if err := os.WriteFile(filepath.Join(to, "mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Restore(context.Background(), Options{Dir: to, Ballast: -1}, []string{path}, nil)
	if !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), "mine") {
		t.Errorf("restore over a file: %v", err)
	}
	empty := t.TempDir()
	if _, err := Restore(context.Background(), Options{Dir: empty, Ballast: -1}, []string{path}, nil); err != nil {
		t.Errorf("restore into an empty folder: %v", err)
	}
}

// A crafted part cannot make a restore write what does not read.
func TestABackupThatIsWholeButWrongIsNotPutInPlace(t *testing.T) {
	s := openIn(t, t.TempDir())
	flipStore(t, s)
	for what, spoil := range map[string]func(*messages.BackupPart){
		"a changed value": func(p *messages.BackupPart) {
			for _, e := range p.GetEntries() {
				if e.GetKey()[0] == tagCommit {
					e.Value[0] ^= 1
					return
				}
			}
		},
		"a missing record": func(p *messages.BackupPart) {
			for i, e := range p.GetEntries() {
				if e.GetKey()[0] == tagCommit {
					p.Entries = append(p.Entries[:i], p.Entries[i+1:]...)
					return
				}
			}
		},
	} {
		var whole bytes.Buffer
		if _, err := s.Backup(context.Background(), &whole, nil); err != nil {
			t.Fatal(err)
		}
		var parts []*messages.BackupPart
		var header *messages.BackupHeader
		_, err := readBackup(&whole, backupParts{
			header: func(h *messages.BackupHeader) error { header = h; return nil },
			part:   func(p *messages.BackupPart) error { parts = append(parts, p); return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		spoil(parts[0])
		path := filepath.Join(t.TempDir(), "crafted")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		w := newFrameWriter(f)
		err = w.begin(header)
		trailer := &messages.BackupTrailer{Mark: header.GetMark()}
		for _, p := range parts {
			err = errors.Join(err, w.frame(framePart, p))
			trailer.Entries += uint64(len(p.GetEntries()))
		}
		if err = errors.Join(err, w.end(trailer), f.Close()); err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(t.TempDir(), "to")
		if _, err := Restore(context.Background(), Options{Dir: to, Ballast: -1}, []string{path}, nil); !errors.Is(err, persistence.ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
		wantNothing(t, filepath.Dir(to))
	}
}
