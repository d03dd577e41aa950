package chaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model/script"
	"github.com/troupe-dev/troupe/persistence/badger"
)

// errands is a turn with a call.
const errands = `
name: errands
rules:
  - match: '^read$'
    steps:
      - tool_calls: [{name: read_file, arguments: {path: note.txt}}]
      - text: It says that nobody has to wait.
  - reply: {text: 'You said ${user}'}
`

// held is what a process holds.
type held struct {
	goroutines, files int
	heap              float64 // MiB, after a collection
}

func (h held) String() string {
	return fmt.Sprintf("%d goroutines, %d files, %.1f MiB of heap", h.goroutines, h.files, h.heap)
}

// within says whether that is at most a twentieth more than before. A few more are no leak.
func (h held) within(before held) bool {
	return h.goroutines <= before.goroutines+max(before.goroutines/20, 4) && h.files <= before.files+max(before.files/20, 2) &&
		h.heap <= 1.05*before.heap
}

func (s *soak) holds() held {
	t := s.t
	t.Helper()
	runtime.GC()
	runtime.GC() // what the first one put aside for pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	for _, link := range links {
		if name, err := os.Readlink(link); err == nil && !strings.HasPrefix(name, s.store) { // more data are more tables
			files++
		}
	}
	return held{runtime.NumGoroutine(), files, float64(m.HeapAlloc) / (1 << 20)}
}

// TestSoakLeavesNothingBehind makes sessions, uses them and lets them leave memory, in one process: 10,000 of them with
// `make soak`, fewer with -short. Then goroutines, open files and heap are where they were before, within a twentieth.
// What it was before is seen after as many of the same kind have filled caches, pools and tables: a map never gets
// smaller, and the actors' registry is a thousand of them. TROUPE_CHAOS_SESSIONS is how many.
func TestSoakLeavesNothingBehind(t *testing.T) {
	sessions := 1500
	if testing.Short() {
		sessions = 300
	}
	sessions = number(t, "TROUPE_CHAOS_SESSIONS", sessions)
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skip("open files are counted through /proc: ", err)
	}
	s := newSoak(t)
	s.many(sessions + sessions/2)
	before := s.calm()
	t.Logf("after %d sessions: %s", len(s.ids), before)
	s.many(sessions)
	after := s.settled(before)
	t.Logf("after %d sessions: %s", len(s.ids), after)
	if !after.within(before) {
		t.Errorf("%s; %d sessions ago it held %s", after, sessions, before)
	}
	s.wake()
}

// soak is a runtime that lives long.
type soak struct {
	t     *testing.T
	ctx   context.Context
	rt    *troupe.Runtime
	store string // its folder
	dirs  []string
	ids   []string // of all sessions
}

const (
	slots = 16 // sessions at work at the same time, each in a folder of its own
	rest  = 200 * time.Millisecond
)

func newSoak(t *testing.T) *soak {
	t.Helper()
	text, err := script.Parse("errands.yaml", []byte(errands))
	if err != nil {
		t.Fatal(err)
	}
	s := &soak{t: t, ctx: t.Context(), store: filepath.Join(t.TempDir(), "store")}
	// The cache is as large as a few tables, so that it is full early.
	store, err := badger.Open(s.ctx, badger.Options{Dir: s.store, Ballast: -1, BlockCache: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	s.rt, err = troupe.New(s.ctx, troupe.Options{Model: text.Model(), Store: store, DataDir: t.TempDir(), IdleAfter: rest})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.rt.Close(ctx); err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	for range slots {
		dir := t.TempDir()
		if err := os.WriteFile(dir+"/note.txt", []byte("Nobody has to wait.\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		s.dirs = append(s.dirs, dir)
	}
	return s
}

// many makes and uses that many sessions, in batches.
func (s *soak) many(n int) {
	s.t.Helper()
	for done := 0; done < n; done += 500 {
		s.batch(min(500, n-done))
	}
}

// batch makes and uses sessions. Every tenth is watched, every seventh is opened again after it may have left.
func (s *soak) batch(n int) {
	s.t.Helper()
	ids := make([]string, n)
	var all sync.WaitGroup
	for slot, dir := range s.dirs {
		all.Go(func() {
			for i := slot; i < n; i += slots {
				id, err := s.use(dir, i)
				if err != nil {
					s.t.Errorf("session %d: %v", i, err)
					return
				}
				ids[i] = id
			}
		})
	}
	all.Wait()
	if s.t.Failed() {
		s.t.FailNow()
	}
	s.ids = append(s.ids, ids...)
	for i := 0; i < n; i += 7 {
		s.ask(ids[i])
	}
}

func (s *soak) use(dir string, i int) (string, error) {
	session, err := s.rt.Session(s.ctx, troupe.SessionOptions{Dir: dir, Trust: troupe.Full})
	if err != nil {
		return "", err
	}
	if i%10 != 0 {
		res, err := session.Run(s.ctx, "read")
		if err == nil && (res.Text != "It says that nobody has to wait." || len(res.ToolCalls) != 1) {
			err = fmt.Errorf("%s: %q with %d calls", res.Outcome, res.Text, len(res.ToolCalls))
		}
		return session.ID(), err
	}
	last := ""
	for e, err := range session.Stream(s.ctx, "read") {
		if err != nil {
			return "", err
		}
		last = e.GetType()
	}
	if last != messages.EventTurnCompleted {
		return "", fmt.Errorf("the last event is %s", last)
	}
	return session.ID(), nil
}

// ask says something in a session that may have left memory.
func (s *soak) ask(id string) {
	s.t.Helper()
	session, err := s.rt.Open(s.ctx, id)
	if err != nil {
		s.t.Fatal(err)
	}
	if res, err := session.Run(s.ctx, "hello"); err != nil || res.Text != "You said hello" {
		s.t.Fatalf("%s, opened again: %+v %v", id, res, err)
	}
}

// calm waits until everybody has left.
func (s *soak) calm() held {
	s.t.Helper()
	var last held
	(&machine{t: s.t}).eventually("sessions stay in memory", func() bool {
		<-time.After(2 * rest)
		now := s.holds()
		same := now.goroutines == last.goroutines && now.files == last.files && now.heap < last.heap+0.1 && now.heap > last.heap-0.1
		last = now
		return same
	})
	return last
}

// settled waits until as much is held as before, or until it changes no more.
func (s *soak) settled(before held) held {
	s.t.Helper()
	now := s.calm()
	for tries := 0; tries < 10 && !now.within(before); tries++ { // the database tidies up in its own time
		<-time.After(5 * rest)
		now = s.calm()
	}
	return now
}

// wake brings the first and the last sessions back.
func (s *soak) wake() {
	s.t.Helper()
	for _, id := range []string{s.ids[0], s.ids[len(s.ids)/2], s.ids[len(s.ids)-1]} {
		s.ask(id)
	}
}
