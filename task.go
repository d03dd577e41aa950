package troupe

import (
	"context"
	"fmt"

	"github.com/troupe-dev/troupe/messages"
)

// Conversation is a conversation as a value: what one task hands to the next. It never changes;
// a worker that continues it gets a copy, and remembers where it came from.
type Conversation struct {
	ID    string // of the conversation it was taken from
	Seq   uint64 // record up to which it was taken
	Turns []*messages.Turn
}

func (c *Conversation) lineage() *messages.Lineage {
	return &messages.Lineage{Conversation: c.ID, Seq: c.Seq}
}

// Task is one unit of work for an agent. Only Prompt is required.
type Task struct {
	ID           string // the same id again, also in a later process, is the same task: see SessionOptions.ID; "" is a new one
	Prompt       string
	Conversation *Conversation // to continue; nil begins a new one
	Dir          string
	Trust        Trust
	Agent, Model string
}

// TaskResult is what a task came to; Conversation goes into the next one.
type TaskResult struct {
	Conversation  *Conversation
	FinalResponse string
	Result        *Result
}

// taskInput is the id of a task's prompt, which is the first one of its session.
const taskInput = "inp_task"

// Do runs a task in a session of its own. Tasks chain by value: the conversation that one returns can
// be given to any number of others, and none of them sees what the others add. A task that is done again under its ID goes on where it was, or
// returns what it came to; its prompt has to be the same.
func (rt *Runtime) Do(ctx context.Context, t Task) (*TaskResult, error) {
	s, err := rt.Session(ctx, SessionOptions{ID: t.ID, Dir: t.Dir, Trust: t.Trust, Agent: t.Agent, Model: t.Model, Conversation: t.Conversation})
	if err != nil {
		return nil, err
	}
	res, err := s.RunOnce(ctx, taskInput, t.Prompt)
	if err != nil {
		return nil, err
	}
	if res.Outcome != "done" {
		return nil, fmt.Errorf("task in session %s ended as %s: %s", s.ID(), res.Outcome, res.Reason)
	}
	c, err := s.Conversation(ctx)
	if err != nil {
		return nil, err
	}
	return &TaskResult{Conversation: c, FinalResponse: res.Text, Result: res}, nil
}

// Conversation returns the worker's finished exchanges as a value for another task.
func (w *Worker) Conversation(ctx context.Context) (*Conversation, error) {
	h, err := w.History(ctx)
	if err != nil {
		return nil, err
	}
	return &Conversation{ID: h.GetWorkerId(), Seq: h.GetSeq(), Turns: h.GetTurns()}, nil
}
