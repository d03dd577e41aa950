package troupetest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/model/replay"
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

// UsedUp fails the test for each reply of a script that was never given, and each call of a recording that was never asked for: it says more than what
// happened. m is of Model, ModelFile or Replay, also recorded.
func UsedUp(tb testing.TB, m troupe.Model) {
	tb.Helper()
	if r, ok := m.(*Recorded); ok {
		m = r.of
	}
	s, ok := m.(interface{ Unplayed() []string })
	if !ok {
		tb.Fatalf("UsedUp: %T is not the model of a script or a recording: make it with Model, ModelFile or Replay", m)
	}
	for _, left := range s.Unplayed() {
		tb.Error(left)
	}
}

// Replay makes a model that plays the recording in a file (docs/recordings.md): each request must be one that was recorded. real, which may be nil, gives
// the model that answers when the recording is made: TROUPETEST_UPDATE=1 asks it, and writes the file anew. What is wrong with the file ends the test.
func Replay(tb testing.TB, path string, real func() troupe.Model) troupe.Model {
	tb.Helper()
	if os.Getenv(UpdateVariable) != "" && real != nil {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			tb.Fatal(err)
		}
		return RecordTo(tb, path, real(), nil)
	}
	r, err := replay.Load(path)
	if err != nil {
		if real != nil {
			err = fmt.Errorf("%w\n  %s=1 records it", err, UpdateVariable)
		}
		tb.Fatal(err)
	}
	return r.Model(replay.Options{})
}

// RecordTo has a model record what it is asked and answers in a file, which Replay and troupe -m replay/FILE play. redact takes secrets out; nil: nothing is
// secret, or the runtime that asks knows what is (troupe.Options.Redact), of requests. The file is complete when the test has ended.
func RecordTo(tb testing.TB, path string, m troupe.Model, redact replay.Redactor) troupe.Model {
	tb.Helper()
	r, err := replay.Open(path, redact)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := r.Close(); err != nil {
			tb.Error(err)
		}
	})
	return r.Model(m, 0)
}
