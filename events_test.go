package troupe_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/tools"
)

// unreadable is a store whose streams cannot be read while it fails; what happened in a session can.
type unreadable struct {
	persistence.Store
	fails atomic.Bool
}

func (s *unreadable) Read(ctx context.Context, stream string, from uint64, fn func(persistence.Entry) error) error {
	if s.fails.Load() {
		return persistence.ErrUnavailable
	}
	return s.Store.Read(ctx, stream, from, fn)
}

func (s *unreadable) Release(l persistence.Lease) { s.Store.(persistence.Releaser).Release(l) }

// TestAnEventThatCannotBeReadWholeIsNotShown: events that begin in the middle of a program's call read back what it was asked with.
func TestAnEventThatCannotBeReadWholeIsNotShown(t *testing.T) {
	type args struct {
		N int `json:"n" desc:"A number."`
	}
	double := tool(t, "double", messages.Effect_AT_MOST_ONCE, func(*tools.Context, args) (*tools.Result, error) { return &tools.Result{Content: "ok"}, nil })
	store := &unreadable{Store: memoryOf(t)}
	rt, ctx := runtimeOf(t, troupe.Options{Model: echo(), Tools: []troupe.Tool{double}, Store: store, DataDir: t.TempDir()})
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: t.TempDir(), Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Call(ctx, "double", args{21}); err != nil {
		t.Fatal(err)
	}
	planned := func(after uint64) (*troupe.Event, error) {
		for e, err := range rt.Events(ctx, s.ID(), after) {
			if err != nil || e.GetType() == messages.EventToolPlanned {
				return e, err
			}
		}
		return nil, context.Cause(ctx)
	}
	whole, err := planned(0)
	if err != nil || whole.GetArguments() != `{"n":21}` {
		t.Fatalf("%v, %v", whole, err)
	}
	for _, fails := range []bool{false, true} {
		store.fails.Store(fails)
		e, err := planned(whole.GetSeq() - 1)
		if fails && !errors.Is(err, persistence.ErrUnavailable) || !fails && (err != nil || e.GetArguments() != whole.GetArguments()) {
			t.Errorf("the store fails: %v; shown: %v, %v", fails, e, err)
		}
	}
	store.fails.Store(false)
}
