package troupe_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/tools"
)

func echo() say {
	return func(req *model.Request) (string, []*messages.ToolCall) {
		return "you said " + req.Prompt.Messages[len(req.Prompt.Messages)-1].Text, nil
	}
}

func TestPromptsOfManyGoroutinesQueueAndEachGetsItsOwnAnswer(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: echo()})
	s, err := rt.Session(ctx, troupe.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 30 {
		all.Go(func() {
			res, err := s.Run(ctx, fmt.Sprint("prompt ", i))
			if err != nil || res.Text != fmt.Sprint("you said prompt ", i) {
				t.Errorf("%d: %v %v", i, res, err)
			}
		})
	}
	all.Wait()
	h, err := s.History(ctx)
	if err != nil || len(h.GetTurns()) != 30 {
		t.Errorf("%d turns, %v", len(h.GetTurns()), err)
	}
}

func TestACallIsJournaledAndGoesByThePolicy(t *testing.T) {
	type args struct {
		N int `json:"n" desc:"A number."`
	}
	double := tool(t, "double", messages.Effect_AT_MOST_ONCE, func(_ *tools.Context, a args) (*tools.Result, error) {
		return &tools.Result{Content: fmt.Sprint(2 * a.N)}, nil
	})
	rt, ctx := runtimeOf(t, troupe.Options{Model: echo(), Tools: []troupe.Tool{double}})
	trusted, err := rt.Session(ctx, troupe.SessionOptions{Dir: t.TempDir(), Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	r, err := trusted.Call(ctx, "double", args{21})
	if err != nil || r.GetContent() != "42" || r.GetStatus() != messages.ToolFinished_OK {
		t.Errorf("%v %v", r, err)
	}
	m, err := rt.Ask(ctx, &messages.ListCalls{SessionId: trusted.ID()})
	if err != nil {
		t.Fatal(err)
	}
	if calls := m.(*messages.Calls).GetCalls(); len(calls) != 1 || calls[0].GetState() != "succeeded" || calls[0].GetArguments() != `{"n":21}` {
		t.Errorf("listed: %v", calls)
	}
	strict, err := rt.Session(ctx, troupe.SessionOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := strict.Call(ctx, "double", args{1}); err != nil || r.GetErrorCode() != tools.CodePermissionDenied {
		t.Errorf("in a restricted folder: %v %v", r, err)
	}
	if r, err := trusted.Call(ctx, "double", map[string]any{"m": 1}); err != nil || r.GetErrorCode() != tools.CodeInvalidArguments {
		t.Errorf("with other arguments: %v %v", r, err)
	}
	if _, err := trusted.Call(ctx, "double", func() {}); err == nil {
		t.Error("arguments that cannot be encoded were taken")
	}
}

func TestBreakingOutOfAStreamLeavesTheTurnRunning(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: echo()})
	s, err := rt.Session(ctx, troupe.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range s.Stream(ctx, "go") {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	res, err := s.Wait(ctx)
	if err != nil || res.Text != "you said go" || res.Outcome != "done" {
		t.Errorf("%v %v", res, err)
	}
}

func TestAStreamEndsWithTheEndOfItsOwnTurn(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: echo()})
	s, err := rt.Session(ctx, troupe.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 5 {
		all.Go(func() {
			text, seq := "", uint64(0)
			for ev, err := range s.Stream(ctx, fmt.Sprint(i)) {
				if err != nil {
					t.Error(err)
					return
				}
				if ev.GetSeq() != 0 && ev.GetSeq() <= seq {
					t.Errorf("event %d after %d", ev.GetSeq(), seq)
				}
				seq = max(seq, ev.GetSeq())
				text = ev.GetText()
			}
			if text != fmt.Sprint("you said ", i) {
				t.Errorf("stream %d ended with %q", i, text)
			}
		})
	}
	all.Wait()
}

// TestEventsThatAreAskedForAfterATurnHaveItsEnd: also when the session's policy has kept that back, and nothing else follows.
func TestEventsThatAreAskedForAfterATurnHaveItsEnd(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: echo()})
	for _, policy := range []troupe.Persist{troupe.PersistMessage, troupe.PersistTask, troupe.PersistManual} {
		s, err := rt.Session(ctx, troupe.SessionOptions{Persist: policy})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Run(ctx, "go"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		for e, err := range rt.Events(ctx, s.ID(), 0) {
			if err != nil {
				t.Errorf("%s: %v", policy, err)
			}
			if err != nil || e.GetType() == messages.EventTurnCompleted {
				break
			}
		}
		cancel()
	}
}

func TestOptionsThatCannotWorkAreRefused(t *testing.T) {
	ctx := context.Background()
	store := memoryOf(t)
	defer store.Close()
	twice := tool(t, "twice", messages.Effect_PURE, func(*tools.Context, struct{}) (*tools.Result, error) { return nil, nil })
	for name, o := range map[string]troupe.Options{
		"a store without a folder":  {Store: store},
		"two tools of one name":     {Tools: []troupe.Tool{twice, twice}},
		"a folder that is no place": {DataDir: "/dev/null/data"},
	} {
		if rt, err := troupe.New(ctx, o); err == nil {
			t.Errorf("%s: taken", name)
			_ = rt.Close(ctx)
		}
	}
	rt, ctx := runtimeOf(t, troupe.Options{})
	var f *troupe.Failure
	if _, err := rt.Open(ctx, "ses_none"); !errors.As(err, &f) || f.GetCode() != messages.CodeNotFound {
		t.Errorf("a session that does not exist: %v", err)
	}
	s, err := rt.Session(ctx, troupe.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := s.Run(ctx, "go"); err != nil || res.Outcome != "error" || res.Reason == "" {
		t.Errorf("without a model: %v %v", res, err)
	}
	if err := s.SetModel(ctx, "other"); !errors.As(err, &f) || f.GetCode() != messages.CodeModel {
		t.Errorf("a model that cannot be found: %v", err)
	}
}

func TestARuntimeThatIsClosedAnswersEverybodyAndLeavesNothingRunning(t *testing.T) {
	before := goleak.IgnoreCurrent()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	rt, err := troupe.New(ctx, troupe.Options{Model: echo()})
	if err != nil {
		t.Fatal(err)
	}
	s, err := rt.Session(ctx, troupe.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	asked, ended := make(chan struct{}, 1024), make(chan error, 8)
	for range 8 {
		go func() {
			for {
				_, err := s.Run(ctx, "go")
				asked <- struct{}{}
				if err != nil {
					ended <- err
					return
				}
			}
		}()
	}
	for range 20 {
		<-asked
	}
	if err := rt.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
	for range 8 {
		var f *troupe.Failure
		if err := <-ended; !errors.As(err, &f) || f.GetCode() != messages.CodeUnavailable {
			t.Errorf("who asked was told %v", err)
		}
	}
	if err := rt.Close(ctx); err != nil {
		t.Errorf("close again: %v", err)
	}
	if _, err := s.Run(ctx, "go"); err == nil {
		t.Error("a closed runtime took a prompt")
	}
	// protoactor-go counts dead letters for a second and then stops.
	counter := goleak.IgnoreTopFunction("github.com/asynkron/protoactor-go/actor.NewDeadLetter.NewThrottle.func4.1")
	if err := goleak.Find(before, counter); err != nil {
		t.Error(err)
	}
}
