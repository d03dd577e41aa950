package troupe_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence/memory"
	"github.com/troupe-dev/troupe/tools"
)

type (
	order struct {
		Item string `json:"item" desc:"What is ordered."`
		Many int    `json:"many,omitempty" desc:"How many of it."`
	}
	receipt struct {
		Number int64
		Lines  []string
	}
)

// shop is a program with a task of its own, whose runs are counted.
type shop struct {
	runs  atomic.Int64
	began chan struct{} // gets a word when a run of "slow" begins, which then lasts as long as its context
	task  *troupe.NamedTask[order, receipt]
	data  string
}

func newShop(t *testing.T, effect messages.Effect_Class) *shop {
	t.Helper()
	s := &shop{began: make(chan struct{}, 8), data: t.TempDir()}
	var err error
	s.task, err = troupe.NewTask(tools.Spec{Name: "place_order", Description: "Places an order.", Effect: effect, NoWorkspace: true}, s.place)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *shop) place(tc *tools.Context, o order) (receipt, error) {
	n := s.runs.Add(1)
	switch o.Item {
	case "slow":
		s.began <- struct{}{}
		<-tc.Signal.Done()
		return receipt{}, tc.Signal.Err()
	case "none":
		return receipt{}, tools.Errorf("out_of_stock", "there is no %s", o.Item)
	case "much":
		return receipt{Lines: []string{strings.Repeat("x", 2<<20)}}, nil
	}
	return receipt{Number: n, Lines: []string{o.Item, "<&>"}}, nil
}

func (s *shop) open(t *testing.T, store *memory.Store) *troupe.Runtime {
	t.Helper()
	t.Cleanup(func() { _ = store.Close() })
	rt, err := troupe.New(t.Context(), troupe.Options{Store: store, DataDir: s.data, Tools: []troupe.Tool{s.task.Tool()}, Model: scripted("rules: [{reply: {text: yes}}]")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rt.Close(context.WithoutCancel(t.Context())) })
	return rt
}

func TestATaskOfAProgramIsTypedAndJournaledAndTheSameRunIsDoneOnce(t *testing.T) {
	shop, store := newShop(t, messages.Effect_AT_MOST_ONCE), memory.New()
	rt := shop.open(t, store)
	s, err := rt.Session(t.Context(), troupe.SessionOptions{Rules: []string{"place_order"}})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		r, err := shop.task.Run(t.Context(), s.Worker, "order-7", order{Item: "tea", Many: 2})
		if err != nil || r.Number != 1 || len(r.Lines) != 2 || r.Lines[1] != "<&>" {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	var f *messages.Failure
	if _, err := shop.task.Run(t.Context(), s.Worker, "order-7", order{Item: "coffee"}); !errors.As(err, &f) || f.GetCode() != messages.CodeConflict {
		t.Errorf("another input under the same id: %v", err)
	}
	if _, err := shop.task.Run(t.Context(), s.Worker, "", order{Item: "none"}); !errors.As(err, &f) || f.GetCode() != "out_of_stock" || !strings.Contains(f.GetMessage(), "there is no none") {
		t.Errorf("a run that fails: %v", err)
	}
	if _, err := shop.task.Run(t.Context(), s.Worker, "", order{Item: "much"}); err == nil || !strings.Contains(err.Error(), "give a file's name instead") {
		t.Errorf("a run that comes to much: %v", err)
	}
	if _, err := shop.task.Run(t.Context(), s.Worker, "", order{}); err != nil { // an empty word is one
		t.Error(err)
	}
	id := s.ID()
	if err := rt.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	rt = shop.open(t, store.Reopen())
	s, err = rt.Open(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	before := shop.runs.Load()
	if r, err := shop.task.Run(t.Context(), s.Worker, "order-7", order{Item: "tea", Many: 2}); err != nil || r.Number != 1 || shop.runs.Load() != before {
		t.Errorf("in the next process: %+v, %v, %d runs", r, err, shop.runs.Load()-before)
	}
}

func TestATaskThatIsCancelledEndsAndOneThatIsCutOffIsUnknownOrRunAgain(t *testing.T) {
	for effect, code := range map[messages.Effect_Class]string{messages.Effect_AT_MOST_ONCE: "interrupted", messages.Effect_PURE: ""} {
		t.Run(effect.String(), func(t *testing.T) {
			shop, store := newShop(t, effect), memory.New()
			rt := shop.open(t, store)
			s, err := rt.Session(t.Context(), troupe.SessionOptions{Rules: []string{"place_order"}})
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 2)
			run := func(s *troupe.Session, id string) {
				_, err := shop.task.Run(t.Context(), s.Worker, id, order{Item: "slow"})
				ended <- err
			}
			var f *messages.Failure
			go run(s, "first")
			<-shop.began
			if err := s.Cancel(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; !errors.As(err, &f) {
				t.Errorf("a run that was cancelled: %v", err)
			}
			go run(s, "second")
			<-shop.began
			id, next := s.ID(), store.Reopen() // as a kill leaves it
			if err := rt.Close(t.Context()); err != nil {
				t.Log(err)
			}
			if err := <-ended; err == nil {
				t.Error("a run that was cut off has succeeded")
			}
			shop.data = t.TempDir() // what the call wrote down as it was stopped is what a kill does not leave
			rt = shop.open(t, next)
			if s, err = rt.Open(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			go run(s, "second")
			if code == "" {
				<-shop.began // it is run again
				if err := s.Cancel(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if err := <-ended; !errors.As(err, &f) || code != "" && f.GetCode() != code {
				t.Errorf("a run that was cut off: %s, %v", f.GetCode(), err)
			}
			if n, want := shop.runs.Load(), int64(2+(1-min(len(code), 1))); n != want {
				t.Errorf("%d runs, want %d", n, want)
			}
		})
	}
}

func TestATaskWhoseOutputCannotBeWrittenDownIsRefusedWhenItIsMade(t *testing.T) {
	spec := tools.Spec{Name: "place_order", Description: "Places an order.", Effect: messages.Effect_PURE, NoWorkspace: true}
	_, err := troupe.NewTask(spec, func(*tools.Context, order) (func(), error) { return nil, nil })
	if err == nil || !strings.Contains(err.Error(), "what it comes to cannot be written down") {
		t.Errorf("a function: %v", err)
	}
	task, err := troupe.NewTask(spec, func(*tools.Context, order) (map[string]*receipt, error) { return nil, nil })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := task.Run(t.Context(), nil, "", order{}); err == nil || !strings.Contains(err.Error(), "there is no worker") {
		t.Errorf("without a worker: %v", err)
	}
}
