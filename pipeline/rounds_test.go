package pipeline_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/pipeline"
)

// decide applies what is to be said now, until there is nothing more.
func (b *bench) decide() {
	b.t.Helper()
	for range 1000 {
		facts := b.s.Decide(b.world())
		if len(facts) == 0 {
			return
		}
		for _, f := range facts {
			b.apply(f)
		}
	}
	b.t.Fatal("there is always more to decide")
}

// settle gives an item its answer.
func (b *bench) settle(path string, index int, r pipeline.Result) {
	b.t.Helper()
	it := b.s.Item(path, index)
	if it == nil {
		b.t.Fatalf("there is no item %d of %s", index, path)
	}
	f := b.s.Settle(b.world(), path, index, it.Input, r)
	if f == nil {
		b.t.Fatalf("the answer of %s %d is not taken: it is %s", path, index, it.Status)
	}
	b.apply(f)
	b.decide()
}

// status is how the items of a step stand.
func (b *bench) status(path string) string {
	var out []string
	for _, ss := range b.s.Steps() {
		if ss.Path == path {
			for _, it := range ss.Items {
				out = append(out, fmt.Sprint(it.Status, it.Attempt))
			}
		}
	}
	return strings.Join(out, " ")
}

var (
	slow = pipeline.Result{Class: "timeout", Error: "slow"}
	fine = pipeline.Result{OK: true, Text: "fine"}
)

func TestARoundThatIsTriedAgainIsWaitedFor(t *testing.T) {
	b := newBench(t, head+`
steps:
  - {id: a, agent: x, prompt: x, repeat: {until: output == "fine", max: 3}, retry: {max: 2, initial: 1s, on: [timeout]}}
`, "", nil)
	b.decide()
	b.settle("a", 0, slow)
	b.now = b.now.Add(time.Second)
	b.decide()
	if got := b.status("a"); got != "running2" {
		t.Fatalf("after the pause: %s", got)
	}
	b.settle("a", 0, fine)
	if b.s.Finished.GetStatus() != pipeline.Succeeded {
		t.Errorf("ended as %v", b.s.Finished)
	}
}

const crowded = head + `
limits: {concurrency: 1}
steps:
  - {id: a, agent: x, prompt: x, on_error: continue, repeat: {until: len(output) > 0, max: 3}, retry: {max: 1, initial: 1s, on: [timeout]}}
  - {id: b, agent: x, prompt: x}
`

func TestAnAttemptWithoutRoomWaitsAndIsNotDue(t *testing.T) {
	b := newBench(t, crowded, "", nil)
	b.decide()
	b.settle("a", 0, slow) // the room is b's now
	b.now = b.now.Add(time.Minute)
	b.decide()
	if got := b.status("a"); got != "waiting1" {
		t.Fatalf("without room: %s", got)
	}
	if due := b.s.Due(b.now); !due.IsZero() {
		t.Errorf("due at %v, and it is %v", due, b.now)
	}
	b.settle("b", 0, fine)
	if got := b.status("a"); got != "running2" {
		t.Fatalf("with room: %s", got)
	}
}

// What decides reads the time before what arms the timer does: a pause that ends between the two is not missed.
func TestAPauseThatEndsBetweenTwoLooksIsDue(t *testing.T) {
	b := newBench(t, crowded, "", nil)
	b.decide()
	b.settle("a", 0, slow)
	b.settle("b", 0, fine)
	if due := b.s.Due(b.now.Add(time.Minute)); !due.Equal(b.now.Add(time.Second)) {
		t.Errorf("due at %v, the pause ends at %v", due, b.now.Add(time.Second))
	}
}

func TestAnAttemptThatTheRateHoldsBackIsDueAtItsTime(t *testing.T) {
	b := newBench(t, head+`
limits: {rate: 1/m}
steps:
  - {id: a, agent: x, prompt: x, retry: {max: 1, initial: 1s, on: [timeout]}}
`, "", nil)
	began := b.now
	b.decide()
	b.settle("a", 0, slow)
	b.now = b.now.Add(2 * time.Second)
	b.decide()
	if due := b.s.Due(b.now); !due.Equal(began.Add(time.Minute)) {
		t.Fatalf("due at %v, it began at %v", due, began)
	}
	b.now = began.Add(time.Minute)
	b.decide()
	if got := b.status("a"); got != "running2" {
		t.Errorf("at its time: %s", got)
	}
}

func TestAnItemThatIsTriedAgainKeepsItsPlace(t *testing.T) {
	b := newBench(t, head+`
steps:
  - {id: a, foreach: "1..3", concurrency: 1, agent: x, prompt: x, retry: {max: 1, initial: 1s, on: [timeout]}}
`, "", nil)
	b.decide()
	b.settle("a", 0, slow)
	b.now = b.now.Add(time.Second)
	b.decide()
	if got := b.status("a"); got != "running2 pending0 pending0" {
		t.Errorf("after the pause: %s", got)
	}
}

// change takes over another file.
func (b *bench) change(text string) {
	b.t.Helper()
	p, err := pipeline.Parse("t.yaml", text, b.o)
	if err != nil {
		b.t.Fatalf("%v", err)
	}
	b.apply(&messages.PlanChanged{Sources: p.Sources, PlanHash: p.Hash})
}

func TestAResumedRoundWithoutRoomIsWaitedFor(t *testing.T) {
	const text = head + `
limits: {concurrency: 2}
steps:
  - {id: b, agent: x, prompt: x}
  - {id: a, agent: x, prompt: x, repeat: {until: len(output) > 0, max: 3}}
`
	b := newBench(t, text, "", nil)
	b.decide()
	b.settle("b", 0, slow)
	b.settle("a", 0, slow)
	if b.s.Finished.GetStatus() != pipeline.Failed {
		t.Fatalf("ended as %v", b.s.Finished)
	}
	b.change(strings.Replace(text, "concurrency: 2", "concurrency: 1", 1))
	b.apply(&messages.RunResumed{By: "test"})
	b.decide()
	if b.status("b") != "running2" || b.status("a") != "pending1" {
		t.Fatalf("b %s, a %s", b.status("b"), b.status("a"))
	}
	b.settle("b", 0, fine)
	if b.status("a") != "running2" {
		t.Errorf("a %s", b.status("a"))
	}
}

func TestAPipelineWhoseTimeIsOverGetsItAnewWhenItIsResumed(t *testing.T) {
	b := newBench(t, head+`
steps:
  - {id: sub, pipeline: inner.yaml, with: {word: w}, timeout: 1m}
outputs: {said: "${{ steps.sub.output.said }}"}
`, "", map[string]string{"inner.yaml": inner})
	b.decide()
	b.now = b.now.Add(time.Minute)
	b.decide()
	if b.s.Finished.GetStatus() != pipeline.Failed {
		t.Fatalf("ended as %v", b.s.Finished)
	}
	b.now = b.now.Add(time.Hour)
	b.apply(&messages.RunResumed{By: "test"})
	b.again()
	b.decide()
	if due := b.s.Due(b.now); b.s.Finished != nil || !due.Equal(b.now.Add(time.Minute)) {
		t.Fatalf("due at %v, it is %v; %v", due, b.now, b.s.Finished)
	}
	b.run(first, echo)
	if got := b.outputs(); got["said"] != "two one w" {
		t.Errorf("outputs %v", got)
	}
}

func TestAPipelineWithoutATimeAnyMoreIsResumedWithoutOne(t *testing.T) {
	const text = head + "steps:\n  - {id: sub, pipeline: inner.yaml, with: {word: w}, timeout: 1m}\n"
	b := newBench(t, text, "", map[string]string{"inner.yaml": inner})
	b.decide()
	b.now = b.now.Add(time.Minute)
	b.decide()
	b.change(strings.Replace(text, ", timeout: 1m", "", 1))
	b.apply(&messages.RunResumed{By: "test"})
	b.decide()
	if due := b.s.Due(b.now); b.s.Finished != nil || !due.IsZero() {
		t.Errorf("due at %v; %v", due, b.s.Finished)
	}
}

func TestWhatAStepSucceededWithoutIsNotTriedAgain(t *testing.T) {
	for _, how := range []string{"on_error: continue", "quorum: 1"} {
		b := newBench(t, head+`
steps:
  - {id: sub, foreach: '["p","q"]', pipeline: inner.yaml, with: {word: "${{ item }}"}, `+how+`}
  - {id: z, needs: [sub], agent: x, prompt: x}
`, "", map[string]string{"inner.yaml": inner})
		fail := true
		answer := func(it *pipeline.ItemState) pipeline.Result {
			if fail && (strings.HasPrefix(it.Step().Path, "sub[q]/") || it.Step().Path == "z") {
				return pipeline.Result{Error: "no"}
			}
			return echo(it)
		}
		b.run(first, answer)
		if b.s.Finished.GetStatus() != pipeline.Failed || b.status("sub") != "succeeded1 failed1" {
			t.Fatalf("%s: ended as %v, sub %s", how, b.s.Finished, b.status("sub"))
		}
		fail = false
		b.apply(&messages.RunResumed{By: "test"})
		b.run(first, answer)
		if b.s.Finished.GetStatus() != pipeline.Succeeded || b.status("sub") != "succeeded1 failed1" || b.status("z") != "succeeded2" {
			t.Errorf("%s: %v, sub %s, z %s", how, b.s.Finished, b.status("sub"), b.status("z"))
		}
	}
}

// TestAMemberWhoseTurnFailedSpeaksAgainWhenItsRunIsResumed and the group does not succeed without those that its quorum wants.
func TestAMemberWhoseTurnFailedSpeaksAgainWhenItsRunIsResumed(t *testing.T) {
	failed := pipeline.Result{Error: "no"}
	for _, c := range []struct {
		quorum, rounds int
		first, again   string // what becomes of the turns, in order: + or -
		before, after  string // how the run stands
		said           string
	}{
		{1, 1, "---", "---", pipeline.Failed, pipeline.Failed, "a1 b1 c1 a1 b1 c1"},
		{1, 1, "---", "+--", pipeline.Failed, pipeline.Succeeded, "a1 b1 c1 a1 b1 c1"},
		{2, 1, "--", "--", pipeline.Failed, pipeline.Failed, "a1 b1 a1 b1"},
		{2, 1, "--", "-++", pipeline.Failed, pipeline.Succeeded, "a1 b1 a1 b1 c1"},
		{3, 1, "+-", "+-", pipeline.Failed, pipeline.Failed, "a1 b1 b1 c1"},
		{3, 1, "+-", "++", pipeline.Failed, pipeline.Succeeded, "a1 b1 b1 c1"},
		{2, 2, "-++-", "+++", pipeline.Failed, pipeline.Succeeded, "a1 b1 c1 b2 a1 b2 c2"},
	} {
		name := fmt.Sprintf("quorum %d, rounds %d, %s then %s", c.quorum, c.rounds, c.first, c.again)
		b := newBench(t, head+fmt.Sprintf("steps:\n  - {id: g, group: [a, b, c], rounds: %d, quorum: %d, prompt: x}\n", c.rounds, c.quorum), "", nil)
		speak := func(turns string) {
			b.decide()
			from := len(strings.Fields(b.status("g"))) - 1
			for i, how := range turns {
				if b.s.Finished != nil {
					t.Fatalf("%s: over before turn %d", name, i)
				}
				r := fine
				if how == '-' {
					r = failed
				}
				b.settle("g", from+i, r)
			}
		}
		speak(c.first)
		if got := b.s.Finished.GetStatus(); got != c.before {
			t.Fatalf("%s: it ended as %q", name, got)
		}
		b.apply(&messages.RunResumed{By: "test"})
		speak(c.again)
		if got := b.s.Finished.GetStatus(); got != c.after {
			t.Errorf("%s: resumed, it ended as %q: %s", name, got, b.s.Finished.GetError())
		}
		var said []string
		for _, ss := range b.s.Steps() {
			for _, it := range ss.Items {
				v, _ := it.Value.(map[string]any)
				said = append(said, fmt.Sprint(v["member"], v["round"]))
			}
		}
		if got := strings.Join(said, " "); got != c.said {
			t.Errorf("%s: %s spoke", name, got)
		}
	}
}
