package actors_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence/memory"
)

// inBackground makes a call that delegates a task and does not wait.
func inBackground(id, task string) *messages.ToolCall {
	return delegate(id, task, `,"background":true`)
}

// apart is a model of a parent that delegates in the background and goes on, and of children that do what do says.
func apart(do actortest.Model, calls ...*messages.ToolCall) actortest.Model {
	return func(ctx context.Context, r *model.Request) actortest.Reply {
		asked := actortest.Asked(r)
		switch {
		case strings.Contains(r.Prompt.System, "goes on meanwhile"):
			return do(ctx, r)
		case strings.HasPrefix(asked, "The task that you delegated"):
			return actortest.Reply{Text: "heard"}
		}
		return actortest.CallThenSay(calls...)(ctx, r)
	}
}

func behind(gate *actortest.Gate) actortest.Model {
	return func(ctx context.Context, r *model.Request) actortest.Reply {
		return actortest.Reply{Err: gate.Pass(ctx), Text: "done: " + actortest.Asked(r)}
	}
}

// mailTo are the inputs by which a worker was told what became of its children.
func mailTo(h *actortest.House, worker string) (out []*messages.InputAccepted) {
	for _, f := range actortest.Of[*messages.InputAccepted](h.Facts(worker)) {
		if f.GetMail() != nil {
			out = append(out, f)
		}
	}
	return out
}

// quiet waits until no worker of a session has anything to do, and so many turns were done.
func quiet(h *actortest.House, t *testing.T, s string, turns int32) {
	t.Helper()
	actortest.Until(t, fmt.Sprintf("%d turns are done, and all is quiet", turns), func() bool {
		n := int32(0)
		for _, w := range workers(h, s) {
			if n += w.GetTurns(); w.GetTurn() != "" || w.GetStaged() > 0 || w.GetOutbox() > 0 {
				return false
			}
		}
		return n == turns
	})
}

func TestAChildInTheBackgroundTellsItsParentWhatBecameOfIt(t *testing.T) {
	gate := actortest.NewGate()
	h := actortest.New(t, actortest.Options{Model: apart(behind(gate), inBackground("1", "count the files"))})
	s, w := h.Create(&messages.CreateSession{Workspaces: []*messages.WorkspaceSpec{{Uri: "local:" + t.TempDir(), Trust: messages.Trust_FULL}}})
	if got := h.Run(s, "go").GetText(); !strings.Contains(got, "has begun") {
		t.Fatalf("the parent was told %q", got)
	}
	actortest.Wait(t, "the child works on", gate.Came)
	all := workers(h, s)
	if len(all) != 2 || all[1].GetParent() != w || !all[1].GetBackground() || all[0].GetTurn() != "" || all[1].GetTurn() == "" {
		t.Fatalf("the workers are %v", all)
	}
	if tree := actortest.Ask[*messages.Tree](h, "", &messages.DescribeTree{Deep: true}).String(); !strings.Contains(tree, "background:true") {
		t.Errorf("the tree is %v", tree)
	}
	gate.Open()
	quiet(h, t, s, 3)
	in := mailTo(h, w)
	if len(in) != 1 {
		t.Fatalf("the parent was told %v", in)
	}
	mail, text := in[0].GetMail(), in[0].GetParts()[0].GetText()
	if in[0].GetOrigin() != messages.InputAccepted_WORKER || in[0].GetFrom() != all[1].GetId() || mail.GetKind() != messages.Mail_RESULT || mail.GetOutcome() != messages.TurnCompleted_DONE ||
		!strings.Contains(text, all[1].GetId()) || !strings.HasSuffix(text, "\n> done: count the files") {
		t.Errorf("it was told %v", in[0])
	}
	if v := workers(h, s)[0]; v.GetTurns() != 2 {
		t.Errorf("the parent made %d turns", v.GetTurns())
	}
	if out := actortest.Of[*messages.OutboxAcked](h.Facts(all[1].GetId())); len(out) != 1 || out[0].GetRefused() != "" {
		t.Errorf("the child's outbox: %v", out)
	}
}

func TestAChildInTheBackgroundGoesOnAfterARestartAndTellsOnce(t *testing.T) {
	store := memory.New()
	t.Cleanup(func() { _ = store.Close() })
	gate := actortest.NewGate()
	first := actortest.New(t, actortest.Options{Store: store, Model: apart(behind(gate), inBackground("1", "x"))})
	s, w := first.Create(&messages.CreateSession{})
	first.Run(s, "go")
	actortest.Wait(t, "the child works", gate.Came)
	first.Stop()
	again := actortest.NewGate()
	again.Open()
	h := actortest.New(t, actortest.Options{Store: store, Model: apart(behind(again), inBackground("1", "x"))})
	quiet(h, t, s, 3)
	if in := mailTo(h, w); len(in) != 1 || !strings.Contains(in[0].GetParts()[0].GetText(), "done: x") {
		t.Errorf("the parent was told %v", in)
	}
}

func TestACancelOfTheTreeEndsThoseInTheBackgroundAndWakesNobody(t *testing.T) {
	for _, x := range []struct {
		name string
		of   func(parent string) *messages.CancelSession
	}{
		{"of the session", func(string) *messages.CancelSession { return &messages.CancelSession{Inputs: true} }},
		{"of the parent", func(parent string) *messages.CancelSession { return &messages.CancelSession{WorkerId: parent} }},
	} {
		t.Run(x.name, func(t *testing.T) {
			gate := actortest.NewGate()
			h := actortest.New(t, actortest.Options{Model: apart(behind(gate), inBackground("1", "x"))})
			s, w := h.Create(&messages.CreateSession{})
			h.Run(s, "go")
			actortest.Wait(t, "the child works", gate.Came)
			actortest.Ask[*messages.Cancelled](h, s, x.of(w))
			quiet(h, t, s, 2)
			if v := workers(h, s); v[1].GetLastOutcome() != "aborted" || v[0].GetTurns() != 1 || len(mailTo(h, w)) != 0 {
				t.Errorf("the workers are %v; the parent was told %v", v, mailTo(h, w))
			}
			if n := len(actortest.Of[*messages.ChildEnded](h.Facts(w))); n != 1 {
				t.Errorf("the parent has noted %d ends", n)
			}
		})
	}
}

func TestAParentIsToldOfAChildThatWasDeletedOrTakenBack(t *testing.T) {
	for _, x := range []struct {
		name, text string
		end        func(h *actortest.House, s, child string)
	}{
		{"deleted", "the worker is deleted", func(h *actortest.House, s, child string) {
			actortest.Ask[*messages.Ack](h, s, &messages.DeleteWorker{WorkerId: child})
		}},
		{"cancelled by a person", "not today", func(h *actortest.House, s, child string) {
			actortest.Ask[*messages.Cancelled](h, s, &messages.CancelSession{WorkerId: child, Reason: "not today"})
		}},
		{"cancelled by somebody who says that he is its parent", "not today", func(h *actortest.House, s, child string) {
			actortest.Ask[*messages.Cancelled](h, s, &messages.CancelSession{WorkerId: child, By: "parent", Reason: "not today"})
		}},
		{"deleted by somebody who says that he is its parent", "the worker is deleted", func(h *actortest.House, s, child string) {
			actortest.Ask[*messages.Ack](h, s, &messages.DeleteWorker{WorkerId: child, By: "parent"})
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			gate := actortest.NewGate()
			h := actortest.New(t, actortest.Options{Model: apart(behind(gate), inBackground("1", "x"))})
			s, w := h.Create(&messages.CreateSession{})
			h.Run(s, "go")
			actortest.Wait(t, "the child works", gate.Came)
			x.end(h, s, workers(h, s)[1].GetId())
			actortest.Until(t, "the parent is told", func() bool { return workers(h, s)[0].GetTurns() == 2 })
			if in := mailTo(h, w); len(in) != 1 || !strings.Contains(in[0].GetParts()[0].GetText(), x.text) || in[0].GetMail().GetOutcome() != messages.TurnCompleted_ABORTED {
				t.Errorf("the parent was told %v", in)
			}
		})
	}
}

func TestThoseInTheBackgroundAreNoMoreThanTheLimit(t *testing.T) {
	gate := actortest.NewGate()
	h := actortest.New(t, actortest.Options{
		Limits: actors.Limits{Children: 2},
		Model:  apart(behind(gate), inBackground("1", "a"), inBackground("2", "b"), inBackground("3", "c")),
	})
	s, w := h.Create(&messages.CreateSession{})
	if got := h.Run(s, "go").GetText(); !strings.Contains(got, "no more than 2 agents") {
		t.Errorf("the parent was told %q", got)
	}
	gate.Open()
	actortest.Until(t, "both have told", func() bool { return len(mailTo(h, w)) == 2 })
	if n := len(workers(h, s)); n != 3 {
		t.Errorf("there are %d workers", n)
	}
}
