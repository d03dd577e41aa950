package chaos

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/badger"
)

// The test binary started again with these is a writer: it appends to the store in the directory and says
// on its output what was acknowledged.
const (
	writerDir   = "TROUPE_CHAOS_WRITER"
	writerSyncs = "TROUPE_CHAOS_SYNCS" // "lie": every sync succeeds and does nothing
)

// writers is how many streams a writer appends to at the same time.
const writers = 8

// writerStore is the store as the writer opens it: the guards against a full disk are not in question.
func writerStore(dir string) (*badger.Store, error) {
	return badger.Open(context.Background(), badger.Options{Dir: dir, Ballast: -1, RefuseTurnsBelow: 1, RefuseAppendsBelow: 1})
}

// runWriter is the writer's whole life; it reports false in a test.
func runWriter() bool {
	dir := os.Getenv(writerDir)
	if dir == "" {
		return false
	}
	if os.Getenv(writerSyncs) == "lie" {
		if err := lie(); err != nil {
			fmt.Println("unable", err)
			return true
		}
	}
	s, err := writerStore(dir)
	if err != nil {
		fmt.Println("failed", err)
		return true
	}
	fmt.Println("open", s.Boot())
	said := make(chan string)
	for i := range writers {
		go func() { said <- fmt.Sprintln("failed", appendForEver(s, fmt.Sprint("wrk/", i), said)) }()
	}
	for line := range said {
		fmt.Print(line) // one write each: what the other end reads are whole lines
	}
	return true
}

func appendForEver(s *badger.Store, stream string, said chan<- string) error {
	ctx := context.Background()
	l, err := s.Claim(ctx, stream, "writer")
	for err == nil {
		b := persistence.Batch{Lease: l, Expect: l.Next, Session: "ses"}
		for range 1 + l.Next%3 {
			b.Records = append(b.Records, writtenRecord(stream, l.Next))
			l.Next++
		}
		b.Index = []persistence.IndexOp{{Key: "end/" + stream, Value: fmt.Append(nil, l.Next-1)}}
		if _, err = s.Append(ctx, b); err == nil {
			said <- fmt.Sprintln("acked", stream, l.Next-1)
		}
	}
	return err
}

// writtenRecord is what stands at a place of a stream: mostly small, now and then a blob, or one in pieces.
func writtenRecord(stream string, seq uint64) *messages.Record {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, stream, seq)
	size := h.Sum64() % 3000
	switch {
	case h.Sum64()%61 == 0:
		size += 100 << 10
	case h.Sum64()%157 == 0:
		size += 700 << 10
	case stream == "wrk/0":
		size += 48 << 10 // so that the store's tables fill up
	}
	mark := fmt.Sprintf("%s %d;", stream, seq)
	return &messages.Record{RecordId: make([]byte, 16), Type: 1, Body: []byte(strings.Repeat(mark, int(size)/len(mark)+1))}
}

// writer is a running writer and what it has said.
type writer struct {
	t     *testing.T
	cmd   *exec.Cmd
	heard chan struct{} // closed at the end of its output

	mu    sync.Mutex
	acked map[string]uint64
	count int    // of acknowledged appends
	ended string // why it stopped by itself
	deaf  bool
}

func startWriter(t *testing.T, dir string, acked map[string]uint64, env ...string) *writer {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append(env, writerDir+"="+dir)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w := &writer{t: t, cmd: cmd, heard: make(chan struct{}), acked: acked}
	go func() {
		defer close(w.heard)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			w.hear(lines.Text())
		}
	}()
	t.Cleanup(w.kill)
	return w
}

// hear notes what a line acknowledges.
func (w *writer) hear(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.deaf {
		return
	}
	var stream string
	var seq uint64
	if n, _ := fmt.Sscanf(line, "acked %s %d", &stream, &seq); n == 2 {
		w.acked[stream] = max(w.acked[stream], seq)
		w.count++
	} else if !strings.HasPrefix(line, "open ") && w.ended == "" {
		w.ended = line
	}
}

// await waits for that many acknowledged appends.
func (w *writer) await(appends int) {
	w.t.Helper()
	enough := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.count >= appends || w.ended != ""
	}
	(&machine{t: w.t}).eventually("the writer does not write", enough)
	if reason, ok := strings.CutPrefix(w.ended, "unable "); ok {
		w.t.Skip("system calls cannot be filtered here: ", reason)
	}
	if w.ended != "" {
		w.t.Fatalf("after %d appends the writer %s", w.count, w.ended)
	}
}

// cut takes the power from its disk while it writes. Only what was heard before counts as acknowledged: the processor
// goes on here for a moment in which the kernel lets a sync succeed whose pages it has just given up.
func (w *writer) cut(d *cutDisk, how int) {
	w.t.Helper()
	w.mu.Lock()
	w.deaf = true
	w.mu.Unlock()
	d.cut(how)
	w.kill()
}

// stopAndCut takes the power when it is at rest, so that all that it ever said counts.
func (w *writer) stopAndCut(d *cutDisk, how int) {
	w.t.Helper()
	stopped(w.t, w.cmd.Process)
	d.cut(how)
	w.kill()
}

func (w *writer) kill() {
	_ = w.cmd.Process.Kill() // gone already is as good
	<-w.heard
	_ = w.cmd.Wait()
}

// losses is what a store lacks of what was acknowledged, or holds and nobody wrote.
func losses(dir string, acked map[string]uint64) (all []string, records uint64) {
	ctx := context.Background()
	lost := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	s, err := writerStore(dir)
	if err != nil {
		lost("%v", err)
		return all, 0
	}
	for i := range writers {
		stream := fmt.Sprint("wrk/", i)
		end := uint64(0)
		err := s.Read(ctx, stream, 1, func(e persistence.Entry) error {
			if end++; e.Record.GetSeq() != end {
				return fmt.Errorf("%s %d follows %d", stream, e.Record.GetSeq(), end-1)
			}
			if want := writtenRecord(stream, end); string(e.Record.GetBody()) != string(want.GetBody()) {
				return fmt.Errorf("%s %d is not what was written: %d bytes, %.60q", stream, end, len(e.Record.GetBody()), e.Record.GetBody())
			}
			return nil
		})
		if err != nil && !errors.Is(err, persistence.ErrNotFound) {
			lost("read: %v", err)
		}
		if end < acked[stream] {
			lost("%s ends at %d, %d was acknowledged", stream, end, acked[stream])
		}
		records += end
		if said := indexed(s, stream); end > 0 && said != fmt.Sprint(end) {
			lost("the index says that %s ends at %q, it ends at %d", stream, said, end)
		}
	}
	if cursor, err := s.Cursor(ctx, "ses"); err != nil || cursor != records {
		lost("the cursor is %d with %d records: %v", cursor, records, err)
	}
	if _, err := s.Verify(ctx, nil, func(f persistence.Finding) { lost("verify: %+v", f) }); err != nil {
		lost("verify: %v", err)
	}
	if err := s.Close(); err != nil {
		lost("close: %v", err)
	}
	return all, records
}

func indexed(s *badger.Store, stream string) (value string) {
	_ = s.Index(context.Background(), "end/"+stream, func(_ string, v []byte) error { // none is no value
		value = string(v)
		return nil
	})
	return value
}
