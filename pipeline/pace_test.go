package pipeline_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// A run that was away for an hour ends as late as its newest items say, and not as late as its beginning does.
func TestThePaceOfAStepIsThatOfItsNewestItemsSinceTheRunCameBack(t *testing.T) {
	b := newBench(t, "version: 1\nname: t\nlimits: {concurrency: 1}\nsteps:\n  - {id: each, foreach: \"1..100\", agent: default, prompt: \"${{ item }}\"}\n", "{}", nil)
	step := func(every time.Duration, items int) {
		for range items {
			for _, f := range b.s.Decide(b.world()) {
				b.apply(f)
			}
			b.now = b.now.Add(every)
			for _, it := range b.s.Steps()[0].Items {
				if it.Status == "running" {
					b.apply(proto.Message(&messages.StepItemFinished{Step: "each", Index: int32(it.Index), Status: "succeeded"}))
				}
			}
		}
	}
	at := func(perSecond float64, seconds int) {
		t.Helper()
		left := time.Duration(seconds) * time.Second
		rate, rest := b.s.Steps()[0].Pace(b.now)
		if rate != perSecond || rest != left {
			t.Errorf("%.3f/s, %s left; want %.3f/s, %s", rate, rest, perSecond, left)
		}
	}
	step(time.Second, 1)
	at(0, 0)
	step(time.Second, 19) // the first one needs the step to begin, too
	open := 0
	for _, it := range b.s.Steps()[0].Items {
		if it.Status != "succeeded" {
			open++
		}
	}
	at(1, open)
	b.now = b.now.Add(time.Hour)
	b.apply(&messages.RunActivated{Epoch: 2})
	at(0, 0)
	step(2*time.Second, 5)
	at(0.5, (open-5)*2)
	b.now = b.now.Add(8 * time.Second) // nothing ends
	at(0.25, (open-5)*4)
}
