package main

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/messages"
)

// askShared adds the shared conversations in which somebody waits for the word.
func (f *whyFacts) askShared(ctx context.Context, n node, session string) error {
	all, err := ask[*messages.Conversations](ctx, n, &messages.ListConversations{SessionId: session})
	if err != nil {
		return err
	}
	var shown *messages.Shown
	for _, v := range all.GetConversations() {
		switch {
		case v.GetWaiting() == 0:
			continue
		case f.live:
			m := &messages.ReadConversation{Name: v.GetConversationId(), After: v.GetSeq(), Limit: 1}
			v, err = ask[*messages.SharedConversation](ctx, n, inSession(session, &messages.ToSession{Command: &messages.ToSession_ReadConversation{ReadConversation: m}}))
		case shown == nil: // asking itself would wake it
			shown, err = ask[*messages.Shown](ctx, n, &messages.Show{Id: session})
		}
		if err != nil {
			return err
		}
		for _, x := range shown.GetSession().GetConversations() {
			if x.GetConversationId() == v.GetConversationId() {
				v = x
			}
		}
		f.talks = append(f.talks, v.JSON())
	}
	return nil
}

// wants is the first turn of a worker, or the one of an id, that waits for the word, and its place in the queue from 1; 0: there is none.
func (f *whyFacts) wants(worker, turn string) (in *messages.ConversationJSON, place int) {
	for i := range f.talks {
		for at, q := range f.talks[i].Queue {
			if q.Worker == worker || turn != "" && q.Turn == turn {
				return &f.talks[i], at + 1
			}
		}
	}
	return nil, 0
}

// word is about a turn that waits for the word of a shared conversation.
func (j whyJSON) word(f *whyFacts, in *messages.ConversationJSON, place int) whyJSON {
	q := in.Queue[place-1]
	j.Since = q.At
	j.For.Kind, j.For.Subject, j.For.Worker, j.For.Position, j.For.Of = "word", in.ID, q.Worker, place, len(in.Queue)
	who := "nobody has it"
	for _, m := range in.Members {
		if in.Speaking != "" && m.Worker == in.Speaking {
			who = m.Name + " (" + m.Worker + ") has it since " + in.Since
		}
	}
	if !f.live {
		j.For.Command = cmp.Or(f.goOn, "troupe serve")
		return j.say(f, "turn %[2]s waits for the word in conversation %[3]s%[1]s, as number %[4]d of %[5]d: %[6]s, and no process works on it; go on with: %[7]s", q.Turn, in.Name, place, len(in.Queue), who, j.For.Command)
	}
	return j.say(f, "turn %[2]s waits for the word in conversation %[3]s%[1]s, as number %[4]d of %[5]d: %[6]s", q.Turn, in.Name, place, len(in.Queue), who)
}

// whyInput is why of an input whose turn has not ended, or of a turn of a shared conversation that waits. It is false for an id that is neither.
func whyInput(ctx context.Context, n node, id string, all *messages.Workers) (j whyJSON, found bool, err error) {
	if !strings.HasPrefix(id, messages.InputPrefix) {
		return j, false, nil
	}
	talks, err := ask[*messages.Conversations](ctx, n, &messages.ListConversations{})
	if err != nil {
		return j, false, err
	}
	facts := func(session string) *whyFacts {
		var f *whyFacts
		if err == nil {
			f, err = whyAsk(ctx, n, session, all)
		}
		return f
	}
	for _, v := range talks.GetConversations() {
		if v.GetWaiting() == 0 {
			continue
		}
		f := facts(v.GetSessionId())
		if err != nil {
			return j, false, err
		}
		if in, place := f.wants("", id); place > 0 {
			return whyJSON{ID: id, State: "waiting"}.word(f, in, place), true, nil
		}
	}
	before, err := ask[*messages.Tree](ctx, n, &messages.DescribeTree{Deep: true}) // asking for inputs wakes a session
	if err != nil {
		return j, false, err
	}
	for _, w := range all.GetWorkers() {
		if w.GetStaged() == 0 && w.GetTurn() == "" {
			continue
		}
		m := &messages.ListInputs{WorkerId: w.GetId()}
		in, err := ask[*messages.Inputs](ctx, n, inSession(w.GetSessionId(), &messages.ToSession{Command: &messages.ToSession_ListInputs{ListInputs: m}}))
		if err != nil {
			return j, false, err
		}
		for at, v := range in.GetInputs() {
			if v.GetInputId() != id {
				continue
			}
			f, err := whyAsk(ctx, n, w.GetSessionId(), all)
			if err != nil {
				return j, false, err
			}
			f.live = f.live && awake(before, w.GetSessionId())
			return whyStaged(f, w.JSON(), in.GetInputs(), at), true, nil
		}
	}
	return j, false, nil
}

// awake says whether a session is in memory.
func awake(all *messages.Tree, session string) bool {
	return slices.ContainsFunc(all.GetRoot().GetChildren(), func(c *messages.ActorView) bool { return c.GetId() == session })
}

// whyStaged is why of one of a worker's inputs: those that wait for a turn wait for all before them.
func whyStaged(f *whyFacts, w messages.WorkerJSON, inputs []*messages.InputView, at int) whyJSON {
	own := inputs[at]
	of := whyWorker(f, &w, 0)
	if own.GetState() != "staged" {
		of.ID = own.GetInputId()
		return of
	}
	place, total := 0, 0
	for i, v := range inputs {
		if v.GetState() != "staged" {
			continue
		}
		if total++; i <= at {
			place++
		}
	}
	j := whyJSON{ID: own.GetInputId(), State: "staged", Since: messages.FormatTime(own.GetAtUnixMs()), For: whyWait{
		Kind: "turn", Subject: w.Turn, Worker: w.ID, Position: place, Of: total, Command: of.For.Command,
	}}
	if w.Turn == "" {
		j.For.Kind = "input"
		return j.say(f, "it waits for its turn%[1]s, as number %[2]d of %[3]d, and no turn is open: %[4]s", place, total, of.Text)
	}
	return j.say(f, "it waits for its turn%[1]s, as number %[2]d of %[3]d, behind turn %[4]s of worker %[5]s: %[6]s", place, total, w.Turn, w.ID, of.Text)
}
