package chaos

import (
	"context"
	"iter"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/memory"
	"github.com/troupe-dev/troupe/tools"
)

// TestEveryCutOfATurnInDoubtRecovers cuts off a call whose policy is to ask a person, then cuts the life that follows,
// in which the person says their word, after each append, once before the append's answer was heard and once after. The
// word counts once, nothing runs without it, and the turn ends.
func TestEveryCutOfATurnInDoubtRecovers(t *testing.T) {
	for _, word := range []troupe.Resolution{troupe.RetryCall, troupe.DoneCall, troupe.FailCall} {
		t.Run(word.String(), func(t *testing.T) {
			whole := newDoubt(t, word)
			whole.begin(t)
			appends := whole.live(t, 1<<30, true)
			whole.check(t, "uncut")
			everyCut(t, appends, 4, func(t *testing.T, n int, heard bool) {
				d := newDoubt(t, word)
				d.begin(t)
				d.live(t, n, heard)
				d.live(t, 1<<30, true)
				d.check(t, "recovered")
			})
		})
	}
}

// doubt is a session whose only call was cut off, and what became of it.
type doubt struct {
	*world
	word troupe.Resolution
	mem  *memory.Store

	mu   sync.Mutex
	runs []string // exec ids, since the first life
	said int      // words that were acknowledged
}

func newDoubt(t *testing.T, word troupe.Resolution) *doubt {
	t.Helper()
	return &doubt{world: newWorld(t), word: word, mem: memory.New()}
}

func (d *doubt) options(t *testing.T, store *cutStore, charge func(tc *tools.Context) error) troupe.Options {
	t.Helper()
	type args struct {
		Name string `json:"name" desc:"what to log"`
	}
	spec := tools.Spec{Name: "charge", Description: "Charges. Example: {\"name\": \"x\"}", Effect: messages.Effect_AT_MOST_ONCE}
	tool, err := tools.Func(spec, func(tc *tools.Context, _ args) (*tools.Result, error) {
		return &tools.Result{Content: "charged"}, charge(tc)
	})
	if err != nil {
		t.Fatal(err)
	}
	// Each life has a data directory of its own: the ledger of the one before would know.
	return troupe.Options{
		Model: chargeOnce{}, Store: store, DataDir: t.TempDir(), Tools: []tools.Tool{tool},
		Unknown: map[string]troupe.Unknown{"charge": troupe.UnknownAsk},
	}
}

// begin is the first life: it ends in the middle of the call.
func (d *doubt) begin(t *testing.T) {
	t.Helper()
	began := make(chan struct{})
	store := &cutStore{Store: d.mem, limit: 1 << 30, cut: make(chan struct{})}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	rt, err := troupe.New(ctx, d.options(t, store, func(tc *tools.Context) error {
		close(began)
		<-tc.Signal.Done()
		return tc.Signal.Err()
	}))
	if err != nil {
		t.Fatal(err)
	}
	asking, stop := context.WithCancel(ctx)
	asked := make(chan error, 1)
	go func() { asked <- d.prompt(asking, rt) }()
	select {
	case <-began:
	case <-ctx.Done():
		t.Fatal("the call does not begin")
	}
	stop()
	if err := <-asked; err != nil {
		t.Logf("the prompt was cut off: %v", err)
	}
	if err := rt.Close(ctx); err != nil {
		t.Fatal(err)
	}
	d.mem = d.mem.Reopen()
}

// live is a life in which the turn goes on and a person says the word about whatever is in doubt. It ends with the
// turn, or when the store is cut off.
func (d *doubt) live(t *testing.T, limit int, heard bool) int {
	t.Helper()
	store := lifeUntilCut(t, d.mem, limit, heard, func(s *cutStore) troupe.Options {
		return d.options(t, s, func(tc *tools.Context) error {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.runs = append(d.runs, tc.ExecID)
			return nil
		})
	}, d.person, d.prompt)
	d.store, d.mem = store, d.mem.Reopen()
	return store.count
}

// lifeUntilCut runs a prompt, and a person beside it, until the prompt is answered or the store is cut off.
func lifeUntilCut(
	t *testing.T, mem *memory.Store, limit int, heard bool, options func(*cutStore) troupe.Options,
	person func(context.Context, *troupe.Runtime), prompt func(context.Context, *troupe.Runtime) error,
) *cutStore {
	t.Helper()
	store := &cutStore{Store: mem, limit: limit, heard: heard, cut: make(chan struct{})}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	rt, err := troupe.New(ctx, options(store))
	if err != nil {
		t.Fatal(err)
	}
	asking, stop := context.WithCancel(ctx)
	var both sync.WaitGroup
	both.Go(func() { person(asking, rt) })
	asked := make(chan error, 1)
	go func() { asked <- prompt(asking, rt) }()
	select {
	case err := <-asked:
		if err != nil && limit > 1<<20 {
			t.Errorf("prompt: %v", err)
		}
		asked <- nil
	case <-store.cut:
	}
	stop()
	both.Wait()
	if err := <-asked; err != nil {
		t.Logf("the prompt was cut off: %v", err)
	}
	if err := rt.Close(ctx); err != nil {
		t.Fatal(err)
	}
	return store
}

// person says the word about every call in doubt, until ctx ends.
func (d *doubt) person(ctx context.Context, rt *troupe.Runtime) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		calls, _ := rt.CallsInDoubt(ctx) // an error is the end
		for _, c := range calls {
			if rt.ResolveCall(ctx, c.GetExecId(), d.word, "") == nil {
				d.mu.Lock()
				d.said++
				d.mu.Unlock()
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (d *doubt) check(t *testing.T, when string) {
	t.Helper()
	var doubted, words, results int
	redo := false // a person said to run it again, and it was not started since
	var exec string
	var last *messages.ToolFinished
	for _, f := range d.facts(t) {
		switch f := f.(type) {
		case *messages.ToolPlanned:
			exec = f.GetExecId()
		case *messages.ToolDispatched:
			redo = false
		case *messages.CallDoubted:
			doubted++
			if redo {
				t.Errorf("%s: asked again, though the word was to run it", when)
			}
		case *messages.CallResolved:
			words++
			redo = f.GetResolution() == troupe.RetryCall
		case *messages.ToolFinished:
			results++
			last = f
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.result.GetOutcome() != messages.TurnCompleted_DONE || results != 1 {
		t.Fatalf("%s: the turn ended as %v with %d results", when, d.result, results)
	}
	if words < 1 || words != doubted || d.said > words {
		t.Errorf("%s: doubted %d times, %d words in the journal, %d acknowledged", when, doubted, words, d.said)
	}
	for _, id := range d.runs {
		if id != exec {
			t.Errorf("%s: it ran as %s, not %s", when, id, exec)
		}
	}
	switch d.word {
	case troupe.RetryCall: // one run for each word
		if len(d.runs) < 1 || len(d.runs) > words || last.GetStatus() != messages.ToolFinished_OK || last.GetContent() != "charged" {
			t.Errorf("%s: %d runs after %d words, %v", when, len(d.runs), words, last)
		}
	default:
		if len(d.runs) != 0 || words != 1 || (last.GetStatus() == messages.ToolFinished_OK) != (d.word == troupe.DoneCall) {
			t.Errorf("%s: %d runs after %d words, %v", when, len(d.runs), words, last)
		}
	}
}

// facts reads the worker's journal.
func (d *doubt) facts(t *testing.T) []proto.Message {
	t.Helper()
	var out []proto.Message
	err := d.mem.ReadSession(context.Background(), sessionID, 0, func(e persistence.Entry) error {
		if f, err := messages.WorkerFactIn(e.Record); err == nil && e.Stream[:4] == "wrk/" {
			out = append(out, f)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// chargeOnce is a model that makes one call, and is content with whatever comes of it.
type chargeOnce struct{}

func (chargeOnce) Stream(_ context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	asked := false
	for _, m := range req.Prompt.Messages {
		asked = asked || m.Role == messages.Assistant
	}
	return func(yield func(model.Event, error) bool) {
		if asked {
			_ = yield(model.Event{Kind: model.Text, Text: "all done"}, nil) && yield(model.Event{Kind: model.Finish, Reason: "stop"}, nil)
			return
		}
		_ = yield(model.Event{Kind: model.CallStart, Index: 0, CallID: "call_0", Name: "charge"}, nil) &&
			yield(model.Event{Kind: model.CallArgs, Index: 0, Text: `{"name":"c"}`}, nil) &&
			yield(model.Event{Kind: model.Finish, Reason: "tool_calls"}, nil)
	}
}
