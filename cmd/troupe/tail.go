package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/client"
	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/messages"
)

// tailFlags are the flags of `troupe tail`.
type tailFlags struct {
	after  uint64
	turns  int
	replay bool
}

func newTail(a *app) *cobra.Command {
	f := &tailFlags{turns: -1}
	cmd := formats(&cobra.Command{
		Use:   "tail ID",
		Short: "Show the transcript of a session or worker, and go on as it happens",
		Long: `Show the transcript of a session or worker, and go on as it happens: first what was, then what is, without gap or
repetition. It ends with Ctrl-C, or when the session is closed.

It only watches: it begins nothing, no process stays for its sake, and when the process that works on the session ends, it
waits for the next one.`,
		Args: exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.turns >= 0 && f.after > 0 {
				return usage("troupe tail: --after and -n exclude each other")
			}
			return a.tail(cmd.Context(), f, args[0])
		},
	}, "text", "ndjson")
	cmd.Flags().Uint64Var(&f.after, "after", 0, "begin after the event `SEQ`")
	cmd.Flags().IntVarP(&f.turns, "turns", "n", -1, "begin with the `N`th turn from the end; 0: with what is new")
	cmd.Flags().BoolVar(&f.replay, "replay", false, "end after what was, without waiting for more")
	return cmd
}

var (
	errReplayed = errors.New("everything that was has been shown")
	errClosed   = errors.New("the session was closed")
)

// replayQuiet is how long a replay must say nothing to be at its end. One that was not goes on after its last event.
const replayQuiet = 300 * time.Millisecond

// tailer is one `troupe tail`.
type tailer struct {
	a       *app
	flags   *tailFlags
	loaded  *config.Loaded
	session string
	worker  string // "" for all of the session
	after   uint64
	from    tailStart
	view    tailView
	told    string // the newest word about who works on it
	barren  int    // times in a row that the store had nothing new
}

// tailView shows the events of a whole session.
type tailView interface{ show(e *messages.Event) error }

func (a *app) tail(ctx context.Context, f *tailFlags, id string) error {
	loaded, err := a.load("")
	if err != nil {
		return err
	}
	t := &tailer{a: a, flags: f, loaded: loaded, after: f.after, view: a.newTailView()}
	find := func(ctx context.Context, n node) error { return t.find(ctx, n, id) }
	if err := a.look(ctx, loaded, func() error { return noID(id, nil) }, find); err != nil {
		return err
	}
	err = t.follow(ctx)
	switch {
	case errors.Is(err, errClosed), errors.Is(err, errReplayed):
		return nil
	case ctx.Err() != nil:
		return &exitError{code: exitInterrupted, what: "interrupted", hint: fmt.Sprintf("go on with: troupe tail %s --after %d", id, t.after)}
	}
	return err
}

// find settles which session it is, and where to begin.
func (t *tailer) find(ctx context.Context, n node, id string) error {
	all, err := ask[*messages.Workers](ctx, n, &messages.ListWorkers{})
	if err != nil {
		return err
	}
	var known []string
	for _, w := range all.GetWorkers() {
		known = append(known, w.GetId(), w.GetSessionId())
		if w.GetId() == id {
			t.session, t.worker = w.GetSessionId(), id
		}
		if w.GetSessionId() == id {
			t.session = id
		}
	}
	if t.session == "" {
		return noID(id, known)
	}
	if t.flags.turns < 0 {
		return nil
	}
	shown, err := ask[*messages.Shown](ctx, n, &messages.Show{Id: t.session})
	if err != nil {
		return err
	}
	t.from = startOf(shown, t.worker, t.flags.turns)
	return nil
}

// follow shows what there is, and then what happens, in whatever process it does.
func (t *tailer) follow(ctx context.Context) error {
	for {
		h, err := t.a.openHouse(ctx, opening{loaded: t.loaded, models: newModels(t.loaded, t.a.secrets)})
		if err != nil {
			return err
		}
		err = h.during(ctx, func(ctx context.Context) error { return t.inHouse(ctx, h) })
		own := errors.Is(err, errReplayed) || errors.Is(err, errClosed)
		gone := !own && !h.remote && h.gone(err)
		if cerr := h.close(ctx); err == nil && cerr != nil {
			t.a.note("troupe: warning: %v", cerr)
		}
		switch {
		case errors.Is(err, errReplayed) && !t.flags.replay:
			t.tell("no process works on the session: it is waited for one; begin with: troupe run -s " + t.session + ` "..."`)
		case gone:
			t.tell("the process that worked on the session is gone: it is waited for another one")
			continue // what it did last is in the store
		case err != nil:
			return err
		}
		if err := t.holder(ctx); err != nil {
			return err
		}
	}
}

// tell says something about who works, unless it was said last.
func (t *tailer) tell(what string) {
	if what != t.told {
		t.a.note("troupe: %s", what)
	}
	t.told = what
}

// holder waits until a process works on the data directory, or has worked on it.
func (t *tailer) holder(ctx context.Context) error {
	seen, since := changed(t.loaded.Config.Data.Dir), time.Now()
	t.barren++
	patience := min(time.Duration(t.barren)*time.Second, 10*time.Second) // others look, too, and each look leaves a trace
	tick := time.NewTicker(4 * holderPoll)
	defer tick.Stop()
	for {
		h, err := attach(ctx, t.loaded.Config.Data.Dir)
		if err == nil {
			return h.close(ctx)
		}
		if !errors.Is(err, client.ErrNoHolder) && ctx.Err() == nil {
			t.tell(err.Error())
		}
		if time.Since(since) >= patience && changed(t.loaded.Config.Data.Dir).After(seen) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// inHouse follows the session in one house. One that this process holds brings nothing new, and is in the way of others: it is left
// after what was.
func (t *tailer) inHouse(ctx context.Context, h *house) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := time.AfterFunc(time.Hour, func() { cancel(errReplayed) })
	defer quiet.Stop()
	ends := h.client == nil || t.flags.replay
	if h.client != nil {
		h.client.Watch()
	}
	if ends {
		quiet.Reset(replayQuiet)
	} else {
		quiet.Stop()
	}
	for e, err := range h.Events(ctx, t.session, t.after) {
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			return err
		}
		if ends {
			quiet.Reset(replayQuiet)
		}
		if err := t.take(e); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// take shows an event, if it is wanted.
func (t *tailer) take(e *messages.Event) error {
	t.told, t.barren = "", 0
	t.after = max(t.after, e.GetSeq())
	wanted := t.worker == "" || e.GetWorker() == t.worker || e.GetWorker() == ""
	if wanted {
		for _, e := range t.from.pass(e) {
			if err := t.view.show(e); err != nil {
				return err
			}
		}
	}
	if e.GetType() == messages.EventSessionClosed {
		return errClosed
	}
	return nil
}

// tailStart leaves out what was before the beginning that was asked for.
type tailStart struct {
	turn   string            // that it begins with
	past   int64             // or else: what was written at or before this time is left out
	inputs []*messages.Event // that may be of the turn
}

// startOf finds the beginning of the nth turn from the end.
func startOf(shown *messages.Shown, worker string, n int) tailStart {
	turns := slices.DeleteFunc(slices.Clone(shown.GetTurns()), func(t *messages.TurnView) bool {
		return t.GetTurnId() == "" || worker != "" && t.GetWorkerId() != worker
	})
	switch {
	case n == 0:
		past := shown.GetSession().GetUpdatedAtUnixMs() // its entry is made a moment before its records are
		for _, t := range shown.GetTurns() {
			past = max(past, t.GetStartedAtUnixMs(), t.GetCompletedAtUnixMs())
		}
		return tailStart{past: past}
	case len(turns) > n:
		return tailStart{turn: turns[len(turns)-n].GetTurnId()}
	}
	return tailStart{}
}

// pass gives the events to be shown when one arrives.
func (s *tailStart) pass(e *messages.Event) []*messages.Event {
	switch {
	case s.turn == "" && s.past == 0:
		return []*messages.Event{e}
	case s.past != 0:
		if e.GetAtUnixMs() <= s.past {
			return nil
		}
		s.past = 0
		return []*messages.Event{e}
	case e.GetType() == messages.EventInputAccepted:
		s.inputs = append(s.inputs, e)
	case e.GetType() == messages.EventTurnStarted && e.GetTurn() == s.turn:
		out := slices.DeleteFunc(s.inputs, func(in *messages.Event) bool { return in.GetInputId() != e.GetInputId() })
		s.turn, s.inputs = "", nil
		return append(out, e)
	}
	return nil
}

// changed is when anything was written to a data directory last.
func changed(dir string) time.Time {
	var last time.Time
	for _, d := range []string{dir, troupe.StoreDir(dir)} {
		all, err := os.ReadDir(d)
		if err != nil {
			continue // it may be gone at this moment
		}
		for _, e := range all {
			if info, err := e.Info(); err == nil && info.ModTime().After(last) {
				last = info.ModTime()
			}
		}
	}
	return last
}
