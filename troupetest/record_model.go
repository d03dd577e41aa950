package troupetest

import (
	"context"
	"iter"
	"slices"
	"sync"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/model"
)

// Recorded is a model that keeps what it is asked. It is safe for concurrent use.
type Recorded struct {
	of troupe.Model

	mu   sync.Mutex
	seen []*model.Request
}

// Record has a model keep what it is asked, for a test to look at: the system prompt, the messages, the tools that were offered.
func Record(m troupe.Model) *Recorded { return &Recorded{of: m} }

// Stream implements model.Model.
func (r *Recorded) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	r.mu.Lock()
	r.seen = append(r.seen, req)
	r.mu.Unlock()
	return r.of.Stream(ctx, req)
}

// Attempts is the model's own; see model.Attempts.
func (r *Recorded) Attempts() int { return model.Attempts(r.of) }

// Requests are those that were made, in the order in which they came. They are not to be changed.
func (r *Recorded) Requests() []*model.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.seen)
}

// UsedUp fails the test for each reply of a script that was never given: it says more than what happened. m is of Model or ModelFile, also recorded.
func UsedUp(tb testing.TB, m troupe.Model) {
	tb.Helper()
	if r, ok := m.(*Recorded); ok {
		m = r.of
	}
	s, ok := m.(interface{ Unplayed() []string })
	if !ok {
		tb.Fatalf("UsedUp: %T is not the model of a script: make it with Model or ModelFile", m)
	}
	for _, left := range s.Unplayed() {
		tb.Error(left)
	}
}
