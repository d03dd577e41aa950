package badger

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

func keyed(key string) func(*Options) {
	return func(o *Options) { o.EncryptionKey = []byte(strings.Repeat(key, 32)) }
}

const marker = "Plaintext-Marker-5f21c"

// mark puts the marker wherever a store takes text.
func markStore(t *testing.T, s *Store) {
	t.Helper()
	ctx := context.Background()
	l, err := s.Claim(ctx, "wrk/"+marker, "test")
	if err != nil {
		t.Fatal(err)
	}
	long := []byte(strings.Repeat(marker, persistence.BlobThreshold/10))
	blob := []byte("blob " + marker)
	_, err = s.Append(ctx, persistence.Batch{
		Lease: l, Expect: 1, Session: "ses-" + marker,
		Records: []*messages.Record{{RecordId: make([]byte, 16), Type: 1, TurnId: marker, Body: []byte("body " + marker)}, {Type: 1, Body: long}},
		Keys:    []persistence.Key{{Name: "key/" + marker, Value: []byte(marker)}},
		Index:   []persistence.IndexOp{{Key: "index/" + marker, Value: []byte(marker)}},
		Timers:  []persistence.TimerOp{{ID: "timer-" + marker, Due: time.Unix(1, 0), Value: []byte(marker)}},
		Blobs:   []persistence.Blob{{Hash: sha256.Sum256(blob), Data: blob}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.PutSnapshot(ctx, l, &messages.Snapshot{Seq: 1, State: []byte("fold " + marker)}); err != nil {
		t.Fatal(err)
	}
}

// showing lists the files that hold the marker.
func showing(t *testing.T, dir string) (found []string) {
	t.Helper()
	all, err := readFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range all.content {
		if bytes.Contains(b, []byte(marker)) {
			found = append(found, name)
		}
	}
	return found
}

func TestNoFileOfAnEncryptedStoreShowsWhatItHolds(t *testing.T) {
	for name, change := range map[string]func(*Options){"encrypted": keyed("a"), "plain": func(*Options) {}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := openIn(t, dir, change)
			markStore(t, s)
			for what, at := range map[string]string{"killed": image(t, dir), "closed": dir} {
				if what == "closed" {
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
				}
				switch found := showing(t, at); {
				case name == "plain" && len(found) == 0:
					t.Errorf("%s: nothing shows in a store that is not encrypted: the test shows nothing", what)
				case name == "encrypted" && len(found) > 0:
					t.Errorf("%s: shown by %q", what, found)
				}
			}
			s = openIn(t, dir, change)
			if head, err := s.Head(context.Background(), "wrk/"+marker); err != nil || head != 2 {
				t.Errorf("head %d, %v", head, err)
			}
			if f := findings(t, s); len(f) > 0 {
				t.Errorf("found %+v", f)
			}
		})
	}
}

func TestAnotherKeyOpensNothingAndChangesNothing(t *testing.T) {
	none := func(*Options) {}
	for name, c := range map[string]struct{ made, opened func(*Options) }{
		"wrong":    {keyed("a"), keyed("b")},
		"missing":  {keyed("a"), none},
		"needless": {none, keyed("a")},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := openIn(t, dir, c.made)
			appendTo(t, s, "wrk/a", "s", 5)
			killed := image(t, dir)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			for _, dir := range []string{dir, killed} {
				before, err := readFiles(filepath.Join(dir, "db"))
				if err != nil {
					t.Fatal(err)
				}
				o := Options{Dir: dir, Ballast: -1}
				c.opened(&o)
				if _, err := Open(context.Background(), o); !errors.Is(err, persistence.ErrKey) {
					t.Errorf("opened: %v", err)
				}
				if _, err := Repair(context.Background(), o, RepairOptions{Accept: true}); !errors.Is(err, persistence.ErrKey) {
					t.Errorf("repaired: %v", err)
				}
				if err := RotateKey(o, bytes.Repeat([]byte("c"), 32)); !errors.Is(err, persistence.ErrKey) {
					t.Errorf("rotated: %v", err)
				}
				after, err := readFiles(filepath.Join(dir, "db"))
				if err != nil || !maps.EqualFunc(before.content, after.content, bytes.Equal) {
					t.Errorf("something was changed, %v", err)
				}
				wantPrefix(t, openIn(t, dir, c.made), "wrk/a", 5)
			}
		})
	}
}

func TestARotatedKeyOpensAndTheOldOneDoesNot(t *testing.T) {
	dir := t.TempDir()
	s := openIn(t, dir, keyed("a"))
	appendTo(t, s, "wrk/a", "s", 5)
	old := Options{Dir: dir, Ballast: -1}
	keyed("a")(&old)
	if err := RotateKey(old, bytes.Repeat([]byte("b"), 32)); !errors.Is(err, persistence.ErrLocked) {
		t.Errorf("rotating the key of a store in use: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := RotateKey(old, []byte("short")); !errors.Is(err, persistence.ErrKey) {
		t.Errorf("rotating to a short key: %v", err)
	}
	if err := RotateKey(old, bytes.Repeat([]byte("b"), 32)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(context.Background(), old); !errors.Is(err, persistence.ErrKey) {
		t.Errorf("the old key: %v", err)
	}
	s = openIn(t, dir, keyed("b"))
	wantPrefix(t, s, "wrk/a", 5)
	appendTo(t, s, "wrk/a", "s", 2)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantPrefix(t, openIn(t, dir, keyed("b")), "wrk/a", 7)
}

// The way from a store without encryption to one with it, and back.
func TestABackupIsRestoredWithAnotherKeyOrNone(t *testing.T) {
	plain := openIn(t, t.TempDir())
	flipStore(t, plain)
	dir := t.TempDir()
	backUp(t, plain, filepath.Join(dir, "1"), nil)
	to := Options{Dir: filepath.Join(dir, "encrypted"), Ballast: -1}
	keyed("a")(&to)
	if _, err := Restore(context.Background(), to, []string{filepath.Join(dir, "1")}, nil); err != nil {
		t.Fatal(err)
	}
	encrypted := openIn(t, to.Dir, keyed("a"))
	wantSame(t, encrypted, plain)
	backUp(t, encrypted, filepath.Join(dir, "2"), nil)
	wantSame(t, restored(t, filepath.Join(dir, "2")), plain)
}

func TestARepairOfAnEncryptedStoreNamesWhatTheWatermarkKnowsByHash(t *testing.T) {
	s := openIn(t, t.TempDir(), keyed("a"))
	appendTo(t, s, "wrk/a", "one", 5)
	appendTo(t, s, "wrk/b", "two", 7)
	appendTo(t, s, "wrk/c", "two", 3)
	dir := image(t, s.opts.Dir)
	path := glob(t, dir, "db/*.mem")[0]
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	written := len(trimZeros(b))
	clear(b[written/2:])
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	o := Options{Dir: dir, Ballast: -1}
	keyed("a")(&o)
	r, err := Repair(context.Background(), o, RepairOptions{Accept: true, Now: fixedNow})
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	for _, l := range r.Lost {
		fmt.Fprintf(&said, "%s %d-%d; ", l.Stream, l.From, l.To)
	}
	if !strings.Contains(said.String(), "wrk/b ") || !strings.Contains(said.String(), "(unknown) #") || strings.Contains(said.String(), "wrk/a") {
		t.Errorf("lost %s", said.String())
	}
	again := openIn(t, dir, keyed("a"))
	wantPrefix(t, again, "wrk/a", 5)
	if f := findings(t, again); len(f) > 0 {
		t.Errorf("found %+v", f)
	}
}

func TestAnyFlippedByteOfAnEncryptedStoreIsRefusedOrHarmless(t *testing.T) {
	t.Setenv(flipEncrypted, "1")
	dir := t.TempDir()
	s := openIn(t, dir, func(o *Options) { o.EncryptionKey = flipKey() })
	flipStore(t, s)
	killed := image(t, dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	count, few := flipCount, flipCount
	if testing.Short() {
		count, few = 60, 5
	}
	tryFlips(t, dir, count, false)
	tryFlips(t, killed, few, false)
}
