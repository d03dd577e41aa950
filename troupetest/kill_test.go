package troupetest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/pipeline"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/troupetest"
)

// counted is a tool that counts how often it was called.
func counted(t *testing.T, effect messages.Effect_Class, calls *atomic.Int64) troupe.Tool {
	t.Helper()
	tool, err := tools.Func(tools.Spec{Name: "charge", Description: "Charges.", Effect: effect, NoWorkspace: true},
		func(*tools.Context, struct{}) (*tools.Result, error) {
			calls.Add(1)
			return &tools.Result{Content: "charged"}, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	return tool
}

const charges = `
rules:
  - match: '^charge'
    steps:
      - {tool_calls: [{name: charge, arguments: {}}]}
      - {text: 'It is ${tool.content}.'}
  - {match: '^hello', reply: {text: hello}}
`

// TestAProgramThatIsKilledAnywhereGoesOn is the use that EveryKill is made for.
func TestAProgramThatIsKilledAnywhereGoesOn(t *testing.T) {
	var lives atomic.Int64
	troupetest.EveryKill(t, func(t *testing.T) troupetest.Work {
		var calls atomic.Int64
		plan, err := pipeline.Parse("p.yaml", "version: 1\nname: p\nsteps: [{id: a, agent: default, prompt: hello}]\noutputs: {said: \"${{ steps.a.output }}\"}\n", pipeline.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return troupetest.Work{
			Options: troupe.Options{
				Model: troupetest.Model(t, charges), Tools: []troupe.Tool{counted(t, messages.Effect_AT_MOST_ONCE, &calls)},
				Agents: []troupe.Agent{{Name: "default", Tools: []string{"charge"}}},
			},
			Do: func(ctx context.Context, rt *troupe.Runtime) error {
				lives.Add(1)
				s, err := rt.Session(ctx, troupe.SessionOptions{ID: "order-7", Rules: []string{"charge"}})
				if err != nil {
					return err
				}
				res, err := s.RunOnce(ctx, "charge", "charge it")
				if err != nil {
					return err
				}
				if res.Outcome != "done" || !strings.HasPrefix(res.Text, "It is ") {
					return fmt.Errorf("it came to %s %q", res.Outcome, res.Text)
				}
				run, err := rt.RunPipeline(ctx, plan, troupe.RunOptions{ID: "order-7-p"})
				if err != nil {
					return err
				}
				v, err := run.Wait(ctx)
				if err != nil {
					return err
				}
				out, err := troupe.Outputs(v)
				if err != nil || out["said"] != "hello" {
					return fmt.Errorf("the run gave %v: %w", out, err)
				}
				return nil
			},
			Check: func(t *testing.T) {
				if n := calls.Load(); n > 1 {
					t.Errorf("charged %d times", n)
				}
			},
		}
	})
	if n := lives.Load(); n < 50 {
		t.Errorf("there were %d lives: it was not killed at every record", n)
	}
}

// TestAForkIsKilledToo has a program that forks a session, which is written in another way than a turn.
func TestAForkIsKilledToo(t *testing.T) {
	troupetest.EveryKill(t, func(t *testing.T) troupetest.Work {
		return troupetest.Work{Options: troupe.Options{Model: troupetest.Model(t, charges)}, Do: func(ctx context.Context, rt *troupe.Runtime) error {
			s, err := rt.Session(ctx, troupe.SessionOptions{ID: "s"})
			if err != nil {
				return err
			}
			if _, err := s.RunOnce(ctx, "a", "hello"); err != nil {
				return err
			}
			f, err := rt.Fork(ctx, s.ID(), troupe.ForkOptions{})
			if err != nil {
				return err
			}
			h, err := f.History(ctx)
			if err != nil || len(h.GetTurns()) != 1 {
				return fmt.Errorf("the fork has %d turns: %w", len(h.GetTurns()), err)
			}
			return nil
		}}
	})
}

// TestADefectOfRecoveryIsFound has a program that forgets its ids: what it did before a kill it does again.
func TestADefectOfRecoveryIsFound(t *testing.T) {
	if found := charged(t, ""); found < 2 {
		t.Errorf("it was charged %d times at most", found)
	}
	if found := charged(t, "charge"); found > 1 {
		t.Errorf("with an id it was charged %d times", found)
	}
}

// charged is how often a program charges at most, over all kills.
func charged(t *testing.T, id string) (most int64) {
	t.Helper()
	troupetest.EveryKill(t, func(t *testing.T) troupetest.Work {
		var calls atomic.Int64
		return troupetest.Work{
			Options: troupe.Options{
				Model: troupetest.Model(t, charges), Tools: []troupe.Tool{counted(t, messages.Effect_AT_MOST_ONCE, &calls)},
				Agents: []troupe.Agent{{Name: "default", Tools: []string{"charge"}}},
			},
			Do: func(ctx context.Context, rt *troupe.Runtime) error {
				s, err := rt.Session(ctx, troupe.SessionOptions{ID: "s", Rules: []string{"charge"}})
				if err == nil {
					_, err = s.RunOnce(ctx, id, "charge it")
				}
				return err
			},
			Check: func(*testing.T) { most = max(most, calls.Load()) },
		}
	})
	return most
}

const slow = `
rules:
  - {match: '^slow', reply: {text: slow, delay: 10m}}
  - {match: '^flaky', reply: {text: well, fail: {class: overloaded, retry_after: 5m, times: 2}}}
  - match: '^hang'
    steps:
      - {tool_calls: [{name: hang, arguments: {}}]}
      - {text: '${tool.content}'}
  - match: '^write'
    steps:
      - {tool_calls: [{name: write_file, arguments: {path: a.txt, content: hi}}]}
      - {text: '${tool.content}'}
`

// hang is a tool that ends with its call, and says so.
func hang(t *testing.T, ended func()) troupe.Tool {
	t.Helper()
	tool, err := tools.Func(tools.Spec{Name: "hang", Description: "Hangs.", Effect: messages.Effect_PURE, NoWorkspace: true},
		func(tc *tools.Context, _ struct{}) (*tools.Result, error) {
			<-tc.Signal.Done()
			ended()
			return nil, context.Cause(tc.Signal)
		})
	if err != nil {
		t.Fatal(err)
	}
	return tool
}

// TestInABubbleAllTimePassesAtOnce has what takes minutes and hours otherwise, and ends without a goroutine, which the bubble sees to.
func TestInABubbleAllTimePassesAtOnce(t *testing.T) {
	for _, c := range []struct {
		prompt, text string
		least, most  time.Duration
	}{
		{"slow", "slow", 10 * time.Minute, 11 * time.Minute},
		{"flaky", "well", 10 * time.Minute, 12 * time.Minute},
		{"hang", "Timed out after 1800000 ms", 30 * time.Minute, 31 * time.Minute},
		{"write", "Tool execution failed: approval timed out after 3600 s", time.Hour, 2 * time.Hour},
	} {
		t.Run(c.prompt, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := troupetest.Runtime(t, troupe.Options{
					Model: troupetest.Model(t, slow), Tools: []troupe.Tool{hang(t, func() {})}, ToolTimes: map[string]time.Duration{"hang": 30 * time.Minute},
					Agents: []troupe.Agent{{Name: "default", Tools: []string{"hang", "write_file"}}}, Limits: troupe.Limits{Approval: time.Hour, Wall: 24 * time.Hour},
				})
				s, err := rt.Session(t.Context(), troupe.SessionOptions{Dir: t.TempDir(), Ask: true, Rules: []string{"hang"}})
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				res, err := s.Run(t.Context(), c.prompt)
				if took := time.Since(began); err != nil || res.Text != c.text || took < c.least || took > c.most {
					t.Errorf("after %v: %+v, %v", took, res, err)
				}
			})
		})
	}
}

// TestACallIsOutOfTimeByTheClockInTheTestsHands lets half an hour pass while a call hangs.
func TestACallIsOutOfTimeByTheClockInTheTestsHands(t *testing.T) {
	clock := troupetest.NewClock(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC))
	call, over := context.WithCancel(t.Context())
	defer over()
	rt := troupetest.Runtime(t, troupe.Options{
		Model: troupetest.Model(t, slow), Tools: []troupe.Tool{hang(t, over)}, ToolTimes: map[string]time.Duration{"hang": 30 * time.Minute}, Clock: clock,
		Agents: []troupe.Agent{{Name: "default", Tools: []string{"hang"}}},
	})
	s, err := rt.Session(t.Context(), troupe.SessionOptions{Rules: []string{"hang"}})
	if err != nil {
		t.Fatal(err)
	}
	for e, err := range s.Stream(t.Context(), "hang") {
		if err != nil {
			t.Fatal(err)
		}
		if at := time.UnixMilli(e.GetAtUnixMs()); at.After(clock.Now()) {
			t.Errorf("%s is of %v, and it is %v", e.GetType(), at, clock.Now())
		}
		switch e.GetType() {
		case messages.EventToolPlanned:
			go passes(call, clock)
		case messages.EventTurnCompleted:
			if e.GetText() != "Timed out after 1800000 ms" {
				t.Errorf("%s: %s", e.GetOutcome(), e.GetText())
			}
		}
	}
}

// passes lets minutes pass until the call is over: it waits from when it has begun, which is after it is planned. What comes after it has the turn's hour.
func passes(ctx context.Context, clock *troupetest.Clock) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			clock.Advance(time.Minute)
		case <-ctx.Done():
			return
		}
	}
}

// ending is a test whose end comes when it is called for.
type ending struct {
	failing
	end []func()
}

func (e *ending) Cleanup(fn func()) { e.end = append(e.end, fn) }

// TestAToolThatDoesNotEndFailsTheTestInsteadOfHangingIt has one that looks at no context.
func TestAToolThatDoesNotEndFailsTheTestInsteadOfHangingIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, release := make(chan struct{}), make(chan struct{})
		tool, err := tools.Func(tools.Spec{Name: "hang", Description: "Hangs.", Effect: messages.Effect_PURE, NoWorkspace: true},
			func(*tools.Context, struct{}) (*tools.Result, error) {
				close(began)
				<-release
				return &tools.Result{}, nil
			})
		if err != nil {
			t.Fatal(err)
		}
		e := &ending{failing: failing{TB: t}}
		rt := troupetest.Runtime(e, troupe.Options{Model: troupetest.Model(t, slow), Tools: []troupe.Tool{tool}, Agents: []troupe.Agent{{Name: "default", Tools: []string{"hang"}}}})
		s, err := rt.Session(t.Context(), troupe.SessionOptions{Rules: []string{"hang"}})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if _, err := s.Run(t.Context(), "hang"); err == nil {
				t.Error("the turn of a runtime that was closed has ended well")
			}
		}()
		<-began
		for _, fn := range e.end {
			fn()
		}
		if !strings.HasPrefix(e.said, "the runtime has not ended within") {
			t.Errorf("%q", e.said)
		}
		close(release)
		<-ended
		<-time.After(time.Minute)
	})
}

// TestAScriptMayBeOfASubtestOfAnyName names some as tables of tests do.
func TestAScriptMayBeOfASubtestOfAnyName(t *testing.T) {
	for _, name := range []string{"a, b", "#01", "1.5", "ünï", strings.Repeat("long", 40), "-"} {
		t.Run(name, func(t *testing.T) { troupetest.Model(t, charges) })
	}
}

func TestAModelKeepsWhatItIsAskedAndTellsWhatItNeverSaid(t *testing.T) {
	m := troupetest.Record(troupetest.Model(t, charges))
	rt := troupetest.Runtime(t, troupe.Options{Model: m, Agents: []troupe.Agent{{Name: "default", System: "You greet.", Tools: []string{"read_file"}}}})
	s, err := rt.Session(t.Context(), troupe.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(t.Context(), "hello"); err != nil {
		t.Fatal(err)
	}
	all := m.Requests()
	if len(all) != 1 || !strings.HasPrefix(all[0].Prompt.System, "You greet.") || len(all[0].Tools) != 1 || all[0].Tools[0].Name != "read_file" {
		t.Errorf("%+v", all)
	}
	f := &failing{TB: t}
	troupetest.UsedUp(f, m)
	if want := "TestAModelKeepsWhatItIsAskedAndTellsWhatItNeverSaid:6:9: "; !strings.HasPrefix(f.said, want) || !strings.HasSuffix(f.said, "this reply was never given (match: '^charge')") {
		t.Errorf("%q", f.said)
	}
	if _, err := s.Run(t.Context(), "charge"); err != nil {
		t.Fatal(err)
	}
	troupetest.UsedUp(t, m)
}

// TestAProgramThatEndsItsTestIsToldNotToDoSo plays the test below in a process of its own, which has to end.
func TestAProgramThatEndsItsTestIsToldNotToDoSo(t *testing.T) {
	if os.Getenv("TROUPETEST_FATAL") != "" {
		troupetest.EveryKill(t, func(t *testing.T) troupetest.Work {
			return troupetest.Work{Options: troupe.Options{Model: troupetest.Model(t, charges)}, Do: func(context.Context, *troupe.Runtime) error {
				t.Fatal("no order")
				return nil
			}}
		})
		return
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestAProgramThatEndsItsTestIsToldNotToDoSo$") //nolint:gosec // this very program
	cmd.Env = append(os.Environ(), "TROUPETEST_FATAL=1")
	out, err := cmd.CombinedOutput()
	if err == nil || ctx.Err() != nil || !strings.Contains(string(out), "no order") || !strings.Contains(string(out), "Do has not returned") {
		t.Errorf("%v:\n%s", err, out)
	}
}
