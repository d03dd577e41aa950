package troupe_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/badger"
)

// ageing is a data directory whose conversation is compacted and grows older from run to run.
type ageing struct {
	now     atomic.Int64
	dir     string
	trim    time.Duration
	session string
	asked   *messages.Prompt // the newest of a turn
}

func (g *ageing) clock() time.Time { return time.Unix(g.now.Load(), 0) }

func (g *ageing) open(t *testing.T) *troupe.Runtime {
	t.Helper()
	rt, _ := runtimeOf(t, troupe.Options{DataDir: g.dir, Trim: g.trim, Now: g.clock, Model: say(func(req *model.Request) (string, []*messages.ToolCall) {
		if req.Agent == actors.CompactionAgent {
			return "we talked", nil
		}
		g.asked = req.Prompt
		ms := req.Prompt.Messages
		return "to " + ms[len(ms)-1].Text + ": " + strings.Repeat("a long answer ", 20), nil
	})})
	return rt
}

// live opens the directory, runs so many turns, compacts before the last ones and stops in order; then ten days go by.
func (g *ageing) live(t *testing.T, turns int) {
	t.Helper()
	rt, ctx := g.open(t), t.Context()
	begin := func() (*troupe.Session, error) { return rt.Open(ctx, g.session) }
	if g.session == "" {
		begin = func() (*troupe.Session, error) { return rt.Session(ctx, troupe.SessionOptions{}) }
	}
	s, err := begin()
	if err != nil {
		t.Fatal(err)
	}
	g.session = s.ID()
	for i := range turns {
		if i == turns-3 {
			if c, err := s.Compact(ctx); err != nil || c.UptoSeq == 0 {
				t.Fatalf("%+v, %v", c, err)
			}
		}
		if _, err := s.Run(ctx, fmt.Sprintf("question %d of %d", i, g.now.Load())); err != nil {
			t.Fatal(err)
		}
	}
	if err := rt.Close(ctx); err != nil {
		t.Fatal(err)
	}
	g.now.Add(10 * 24 * 3600)
}

// begins reads where the worker's journal begins, and its snapshots.
func (g *ageing) begins(t *testing.T) (first, older, newer uint64) {
	t.Helper()
	store, err := badger.Open(t.Context(), badger.Options{Dir: troupe.StoreDir(g.dir)})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	err = store.Streams(t.Context(), "wrk/", func(stream string) error {
		var left *persistence.TrimmedError
		first = 1
		if err := store.Read(t.Context(), stream, 1, func(persistence.Entry) error { return nil }); errors.As(err, &left) {
			first = left.First
		} else if err != nil {
			return err
		}
		s, err := store.Snapshot(t.Context(), stream, 0)
		if err != nil {
			return err
		}
		newer = s.GetSeq()
		if s, err = store.Snapshot(t.Context(), stream, newer); errors.Is(err, persistence.ErrNotFound) {
			return nil
		}
		older = s.GetSeq()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return first, older, newer
}

func ask[T proto.Message](t *testing.T, rt *troupe.Runtime, m proto.Message) T {
	t.Helper()
	r, err := rt.Ask(t.Context(), m)
	if err != nil {
		t.Fatalf("%T: %v", m, err)
	}
	return r.(T)
}

// TestWhatACompactionLeftBehindGoesWhenItIsOld: a twin that keeps everything is asked the same, and sends the same.
func TestWhatACompactionLeftBehindGoesWhenItIsOld(t *testing.T) {
	g, twin := &ageing{dir: t.TempDir(), trim: 15 * 24 * time.Hour}, &ageing{dir: t.TempDir()}
	var firsts []uint64
	for _, x := range []*ageing{g, twin} {
		for range 4 {
			x.live(t, 25)
			first, _, _ := x.begins(t)
			firsts = append(firsts, first)
		}
	}
	// The first run has one snapshot; at the end of the second what is left behind is ten days old.
	if firsts[0] != 1 || firsts[1] != 1 || firsts[2] < 50 || firsts[3] <= firsts[2] {
		t.Errorf("the journal began at %d", firsts[:4])
	}
	if firsts[7] != 1 {
		t.Errorf("the twin's journal begins at %d", firsts[7])
	}
	first, older, newer := g.begins(t)
	if older == 0 || first > older {
		t.Errorf("it begins at %d, with snapshots at %d and %d", first, older, newer)
	}
	if !proto.Equal(promptOf(g.asked), promptOf(twin.asked)) || len(g.asked.Messages) < 5 {
		t.Errorf("sent was\n%v\nand by the twin\n%v", promptOf(g.asked), promptOf(twin.asked))
	}
	g.check(t, "question 24")
	g.copied(t)
}

func promptOf(p *messages.Prompt) *messages.Turn {
	out := &messages.Turn{}
	for _, m := range p.Messages {
		out.Messages = append(out.Messages, &messages.ChatMessage{Role: string(m.Role), Content: m.Text})
	}
	return out
}

// check looks at a conversation whose beginning is gone from all sides.
func (g *ageing) check(t *testing.T, newest string) {
	t.Helper()
	rt := g.open(t)
	if v := ask[*messages.Verified](t, rt, &messages.Verify{}); len(v.GetFindings()) != 0 || v.GetRecords() == 0 {
		t.Errorf("verify: %v", v)
	}
	shown := ask[*messages.Shown](t, rt, &messages.Show{Id: g.session})
	turns := shown.GetTurns()
	if !shown.GetTrimmed() || len(turns) < 25 || len(turns) >= 100 || !strings.HasPrefix(turns[len(turns)-1].GetInput(), newest) {
		t.Errorf("shown: trimmed %v, %d turns", shown.GetTrimmed(), len(turns))
	}
	for i, turn := range turns {
		if turn.GetOutcome() != "done" || !strings.HasPrefix(turn.GetText(), "to "+turn.GetInput()) {
			t.Errorf("turn %d: %v", i, turn)
		}
	}
	s, err := rt.Open(t.Context(), g.session)
	if err != nil {
		t.Fatal(err)
	}
	h, err := s.History(t.Context())
	if err != nil || !h.GetTrimmed() || h.GetTurns()[0].GetMessages()[1].GetContent() != "we talked" || !h.GetTurns()[1].GetCompacted() {
		t.Errorf("history: %v, %v", h, err)
	}
	_, err = rt.Fork(t.Context(), g.session, troupe.ForkOptions{At: 7})
	wantCode(t, "fork", err, messages.CodeTrimmed)
	wantCode(t, "export", rt.Export(t.Context(), g.session, &bytes.Buffer{}), messages.CodeTrimmed)
	var resume *troupe.Failure
	for _, err := range rt.Events(t.Context(), g.session, 3) {
		wantCode(t, "events", err, messages.CodeTrimmed)
		if !errors.As(err, &resume) || resume.GetResumeAfter() <= 3 {
			t.Errorf("events are there again after %d", resume.GetResumeAfter())
		}
		break
	}
	for e, err := range rt.Events(t.Context(), g.session, resume.GetResumeAfter()) {
		if err != nil || e.GetSeq() <= resume.GetResumeAfter() {
			t.Errorf("after %d comes %v, %v", resume.GetResumeAfter(), e, err)
		}
		break
	}
	if err := rt.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// copied goes on with what a backup has of it.
func (g *ageing) copied(t *testing.T) {
	t.Helper()
	rt := g.open(t)
	path := filepath.Join(t.TempDir(), "backup")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := rt.Backup(t.Context(), f, nil); err != nil {
		t.Fatal(err)
	}
	if err := rt.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.dir = t.TempDir()
	if _, err := badger.Restore(t.Context(), badger.Options{Dir: troupe.StoreDir(g.dir)}, []string{path}, nil); err != nil {
		t.Fatal(err)
	}
	g.check(t, "question 24")
	g.live(t, 4)
	g.check(t, "question 3")
}
