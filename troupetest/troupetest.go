// Package troupetest helps to test agents and pipelines without a language model: models that answer from a script, a clock
// in the test's hands, golden files, and transcripts of what an agent or a pipeline said and did, which `troupe test` plays, too
// (docs/transcripts.md).
//
// Nothing here is a mock: the runtime, its tools and its journal are the real ones, in memory.
package troupetest

import (
	"context"
	"testing"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/model/script"
)

// Model makes a model of the text of a script (docs/scripts.md). What is wrong with the text ends the test.
func Model(tb testing.TB, text string) troupe.Model {
	tb.Helper()
	s, err := script.Parse(tb.Name(), []byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	return s.Model()
}

// ModelFile is Model of a file.
func ModelFile(tb testing.TB, path string) troupe.Model {
	tb.Helper()
	s, err := script.Load(path)
	if err != nil {
		tb.Fatal(err)
	}
	return s.Model()
}

// Runtime opens a runtime that ends with the test. Without DataDir or Store everything is in memory.
func Runtime(tb testing.TB, o troupe.Options) *troupe.Runtime {
	tb.Helper()
	rt, err := troupe.New(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := rt.Close(context.WithoutCancel(tb.Context())); err != nil { // it has ended by now
			tb.Error(err)
		}
	})
	return rt
}

// Clock is a clock in the test's hands, for troupe.Options.Clock: Advance lets time pass and wakes whoever waits for it; Jump sets the time
// of day without any time passing.
type Clock = actortest.Clock

// NewClock makes a clock that stands at a time of day.
func NewClock(day time.Time) *Clock { return actortest.NewClock(day) }
