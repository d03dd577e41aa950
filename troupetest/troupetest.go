// Package troupetest helps to test agents and pipelines without a language model: models that answer from a script, a clock
// in the test's hands, golden files, and transcripts of what an agent or a pipeline said and did, which `troupe test` plays, too
// (docs/transcripts.md).
//
// Nothing here is a mock: the runtime, its tools and its journal are the real ones, in memory.
//
// Time that has to pass in a test passes at once in a bubble of testing/synctest: timeouts, pauses between retries, delays of a script, deadlines of
// approvals. Only what waits for a real process or file takes real time. Clock is for tests that say when how much time passes.
//
// EveryKill kills a program at every record that it writes, and has it go on.
package troupetest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/model/script"
)

// Model makes a model of the text of a script (docs/scripts.md), which is called as the test unless it says. What is wrong with the text ends the test.
func Model(tb testing.TB, text string) troupe.Model {
	tb.Helper()
	s, err := script.Parse(scriptName(tb.Name()), []byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	return s.Model()
}

// scriptName is the name of a test as one of a script, which goes into headers: names of subtests may hold anything.
func scriptName(test string) string {
	name := regexp.MustCompile(`[^A-Za-z0-9_-]+`).ReplaceAllString(test, "-")
	return strings.Trim(name[max(0, len(name)-64):], "-_")
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

// Runtime opens a runtime that ends with the test. Without DataDir or Store everything is in memory. In a bubble of testing/synctest all of it lives by
// the time of the bubble, and nothing of it is left at the end.
func Runtime(tb testing.TB, o troupe.Options) *troupe.Runtime {
	tb.Helper()
	rt, err := troupe.New(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := closed(tb.Context(), rt); err != nil {
			tb.Error(err)
		}
		if inBubble() {
			<-time.After(settles)
		}
	})
	return rt
}

// closed ends a runtime, also where the context has ended, and says what may be the matter with one that does not end.
func closed(ctx context.Context, rt *troupe.Runtime) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ends)
	defer cancel()
	err := rt.Close(ctx)
	if ctx.Err() != nil {
		return fmt.Errorf("the runtime has not ended within %v: a tool, a hook or a model of the test goes on though its context has ended (of a tool: Signal): %w", ends, errors.Join(err, ctx.Err()))
	}
	return err
}

// ends is how long a runtime may take to end. Calls that are cancelled have 5 s for that (Limits.Grace).
const ends = 30 * time.Second

// settles is how long the actor library may keep a goroutine after its last message: a bubble has to wait for that, in its own time.
const settles = 2 * time.Second

// inBubble says whether this is a goroutine of a bubble of testing/synctest, which nothing tells but that only there may be waited.
func inBubble() (in bool) {
	defer func() { in = recover() == nil }()
	synctest.Wait()
	return true
}

// Clock is a clock in the test's hands, for troupe.Options.Clock: Advance lets time pass and wakes whoever waits for it; Jump sets the time
// of day without any time passing.
type Clock = actortest.Clock

// NewClock makes a clock that stands at a time of day.
func NewClock(day time.Time) *Clock { return actortest.NewClock(day) }
