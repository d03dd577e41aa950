package chaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/memory"
)

// TestEveryPrefixOfRecordsRecovers cuts finer than a crash can: after every record, also inside of what
// was one append. The world is put into the state that the prefix speaks of; a call that was dispatched
// and has no result is tried both ways, as one that happened and as one that did not.
func TestEveryPrefixOfRecordsRecovers(t *testing.T) {
	whole := newWorld(t)
	store := memory.New()
	whole.run(t, &cutStore{Store: store, limit: 1 << 30})
	all := entries(t, store)
	for n := creation(t, all); n <= len(all); n++ {
		for _, happened := range []bool{false, true} {
			last := fmt.Sprintf("%T", fact(t, all[n-1]))
			t.Run(fmt.Sprintf("%d %s, happened=%v", n, last, happened), func(t *testing.T) {
				w := newWorld(t)
				prefix := all[:n]
				w.restore(t, prefix, whole.dir, happened)
				after := rewrite(t, prefix, whole.dir, w.dir)
				w.run(t, &cutStore{Store: after, limit: 1 << 30})
				w.store = after
				w.check(t, "recovered")
			})
		}
	}
}

func entries(t *testing.T, s persistence.Store) []persistence.Entry {
	t.Helper()
	var all []persistence.Entry
	err := s.ReadSession(context.Background(), sessionID, 0, func(e persistence.Entry) error {
		all = append(all, e)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func fact(t *testing.T, e persistence.Entry) proto.Message {
	t.Helper()
	decode := messages.WorkerFactIn
	if e.Stream[:4] == "ses/" {
		decode = messages.SessionFactIn
	}
	f, err := decode(e.Record)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// creation counts the records of the append that made the session: it is never seen in part.
func creation(t *testing.T, all []persistence.Entry) int {
	t.Helper()
	for i, e := range all {
		if _, ok := fact(t, e).(*messages.InputAccepted); ok {
			return i + 1
		}
	}
	t.Fatal("the journal has no input")
	return 0
}

// restore makes the effects of a prefix: those of finished calls, and of dispatched ones if they are to
// have happened.
func (w *world) restore(t *testing.T, prefix []persistence.Entry, _ string, happened bool) {
	t.Helper()
	type call struct{ tool, args string }
	calls := make(map[string]call)
	var asked []*messages.ToolCall
	done := make(map[string]bool)
	var order []string
	for _, e := range prefix {
		switch f := fact(t, e).(type) {
		case *messages.GenerationCompleted:
			asked = f.GetToolCalls()
		case *messages.ToolPlanned:
			calls[f.GetExecId()] = call{f.GetTool(), asked[f.GetOrdinal()].GetArguments()}
		case *messages.ToolDispatched:
			if happened {
				order = append(order, f.GetExecId())
			}
		case *messages.ToolFinished:
			if f.GetStatus() == messages.ToolFinished_OK {
				order = append(order, f.GetExecId())
			}
		}
	}
	for _, id := range order {
		if done[id] {
			continue
		}
		done[id] = true
		w.effect(t, id, calls[id].tool, calls[id].args)
	}
}

func (w *world) effect(t *testing.T, id, tool, args string) {
	t.Helper()
	switch tool {
	case "probe", "charge", "put":
		w.effects[tool] = append(w.effects[tool], id)
	case "edit_file":
		content := "two\n"
		if args == `{"path":"a.txt","edits":[{"old_string":"two","new_string":"three"}]}` {
			content = "three\n"
		}
		if err := os.WriteFile(filepath.Join(w.dir, "a.txt"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// rewrite puts a prefix into a new store, one record per append, with the folder's address changed to
// the one of this world.
func rewrite(t *testing.T, prefix []persistence.Entry, from, to string) *memory.Store {
	t.Helper()
	ctx := context.Background()
	s := memory.New()
	leases := make(map[string]persistence.Lease)
	for _, e := range prefix {
		l, ok := leases[e.Stream]
		if !ok {
			var err error
			if l, err = s.Claim(ctx, e.Stream, "test"); err != nil {
				t.Fatal(err)
			}
			leases[e.Stream] = l
		}
		r := proto.Clone(e.Record).(*messages.Record) //nolint:forcetypeassert // a clone has its type
		r.Body = moved(t, e, from, to)
		_, err := s.Append(ctx, persistence.Batch{Lease: l, Expect: e.Record.GetSeq(), Session: e.Session, Records: []*messages.Record{r}})
		if err != nil {
			t.Fatalf("rewrite %s %d: %v", e.Stream, e.Record.GetSeq(), err)
		}
	}
	return s.Reopen()
}

// moved is the body of a record with the folder's name replaced.
func moved(t *testing.T, e persistence.Entry, from, to string) []byte {
	t.Helper()
	f := fact(t, e)
	switch f := f.(type) {
	case *messages.WorkspaceAttached:
		if f.GetPath() == from {
			f.Path, f.Uri = to, "local:"+to
		}
	case *messages.ToolPlanned:
		if f.GetWorkspace() == "local:"+from {
			f.Workspace = "local:" + to
		}
	case *messages.TurnStarted:
		movedLeases(f.GetLeases(), from, to)
	case *messages.Activated:
		movedLeases(f.GetLeases(), from, to)
	}
	r, err := messages.NewRecord(f, "")
	if err != nil {
		t.Fatal(err)
	}
	return r.GetBody()
}

func movedLeases(leases []*messages.LeaseToken, from, to string) {
	for _, l := range leases {
		if l.GetWorkspace() == "local:"+from {
			l.Workspace = "local:" + to
		}
	}
}
