package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/messages"
)

func newWhy(a *app) *cobra.Command {
	return formats(&cobra.Command{
		Use:   "why ID",
		Short: "Say in one sentence what a session, run, worker, input or call waits for",
		Long: `Say in one sentence what a session, run of a pipeline, worker, input or call waits for, and since when: a model's answer or a permit for it, another
try after a failure, an approval, a workspace in which somebody else works, a person's word on a call in doubt, a tool, a turn before its own, the word
of a shared conversation, a timer, a release, or nothing, and then whether a command goes on in the background. What a person can do about it is said with the command.`,
		Args: exactly("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			loaded, err := a.load("")
			if err != nil {
				return err
			}
			none := func() error { return noID(args[0], nil) }
			return a.look(cmd.Context(), loaded, none, func(ctx context.Context, n node) error {
				j, err := why(ctx, n, args[0])
				if err != nil {
					return err
				}
				return a.emit(j, func(w io.Writer) error {
					_, err := io.WriteString(w, j.Text+"\n")
					return err
				})
			})
		},
	}, "text", "json", "yaml")
}

// why finds out of what kind an id is, asks the house about it, and decides.
func why(ctx context.Context, n node, id string) (whyJSON, error) {
	all, err := ask[*messages.Workers](ctx, n, &messages.ListWorkers{})
	if err != nil {
		return whyJSON{}, err
	}
	var known []string
	own := id
	if strings.HasPrefix(id, messages.RunPrefix) {
		if id, err = sessionOfRun(ctx, n, own); err != nil {
			return whyJSON{}, err
		}
	}
	for _, w := range all.GetWorkers() {
		if id == w.GetId() || id == w.GetSessionId() {
			f, err := whyAsk(ctx, n, w.GetSessionId(), all)
			if err != nil {
				return whyJSON{}, err
			}
			if id == w.GetSessionId() {
				return whySession(f, own), nil
			}
			return whyWorker(f, f.worker(id), 0), nil
		}
		known = append(known, w.GetId(), w.GetSessionId())
	}
	calls, err := ask[*messages.Calls](ctx, n, &messages.ListCalls{})
	if err != nil {
		return whyJSON{}, err
	}
	if j, found, err := whyInput(ctx, n, id, all); found || err != nil {
		return j, err
	}
	for _, c := range calls.JSON() {
		if c.ID == id || c.CallID == id {
			f, err := whyAsk(ctx, n, c.Session, all)
			if err != nil {
				return whyJSON{}, err
			}
			return whyCall(f, &c), nil
		}
		known = append(known, c.ID)
	}
	none := noID(id, known)
	for i, u := range calls.GetUnread() {
		if i == mostDamage {
			break
		}
		none.hint += fmt.Sprintf("\nthe calls of worker %s of session %s are not looked through: %s", u.GetWorkerId(), u.GetSessionId(), oneLine(u.GetProblem(), 200))
	}
	return whyJSON{}, none
}

// sessionOfRun is the session whose only work a run is. To show the run would wake it.
func sessionOfRun(ctx context.Context, n node, run string) (string, error) {
	found, err := ask[*messages.Runs](ctx, n, &messages.ListRuns{RunId: run})
	if err != nil {
		return "", err
	}
	for _, r := range found.GetRuns() {
		return r.GetSessionId(), nil
	}
	all, err := ask[*messages.Runs](ctx, n, &messages.ListRuns{})
	if err != nil {
		return "", err
	}
	var known []string
	for _, r := range all.GetRuns() {
		known = append(known, r.GetRunId())
	}
	return "", noID(run, known)
}

// goOnWith is the command by which a session goes on that no process works on: that of its run, if it was made for one.
func goOnWith(ctx context.Context, n node, session string) (string, error) {
	found, err := ask[*messages.Runs](ctx, n, &messages.ListRuns{RunId: messages.RunOf(session)})
	if err != nil {
		return "", err
	}
	if len(found.GetRuns()) > 0 {
		return "troupe pipeline run --resume " + messages.RunOf(session), nil
	}
	return "troupe run -s " + session, nil
}

// whyAsk gathers what there is to know of one session.
func whyAsk(ctx context.Context, n node, session string, all *messages.Workers) (*whyFacts, error) {
	f := &whyFacts{queues: make(map[string][]string)}
	for _, w := range all.GetWorkers() {
		if w.GetSessionId() == session {
			f.workers = append(f.workers, w.JSON())
		}
	}
	approvals, err := ask[*messages.Approvals](ctx, n, &messages.ListApprovals{SessionId: session})
	if err != nil {
		return nil, err
	}
	f.approvals = approvals.JSON()
	if f.goOn, err = goOnWith(ctx, n, session); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(f.workers, func(w messages.WorkerJSON) bool { return w.State != "inactive" }) {
		calls, err := ask[*messages.Calls](ctx, n, &messages.ListCalls{SessionId: session})
		if err != nil {
			return nil, err
		}
		f.calls = slices.DeleteFunc(calls.JSON(), func(c messages.CallJSON) bool { return c.State == "succeeded" || c.State == "failed" })
	}
	if slices.ContainsFunc(f.calls, func(c messages.CallJSON) bool { return c.State == "executing" }) {
		if err := f.askOffline(ctx, n, session); err != nil {
			return nil, err
		}
	}
	if err := f.askLive(ctx, n, session, all); err != nil {
		return nil, err
	}
	if err := f.askShared(ctx, n, session); err != nil {
		return nil, err
	}
	f.now = time.Now()
	return f, nil
}

// askOffline adds which machines are not connected.
func (f *whyFacts) askOffline(ctx context.Context, n node, session string) error {
	places, err := ask[*messages.Workspaces](ctx, n, &messages.ListWorkspaces{SessionId: session})
	if err != nil {
		return err
	}
	f.offline = make(map[string]string)
	for _, w := range places.JSON() {
		if w.State == "offline" {
			f.offline[w.URI] = cmp.Or(w.Owner, w.Name)
		}
	}
	return nil
}

// askLive adds what only a process that works can tell.
func (f *whyFacts) askLive(ctx context.Context, n node, session string, all *messages.Workers) error {
	tree, err := ask[*messages.Tree](ctx, n, &messages.DescribeTree{Deep: true})
	if err != nil {
		return err
	}
	f.live = awake(tree, session)
	for _, c := range tree.GetRoot().GetChildren() {
		if provider, ok := strings.CutPrefix(c.GetId(), "limiter-"); ok {
			f.queues[provider] = c.GetWaiting()
		}
	}
	if !f.live {
		return nil // asking for its timers would wake it
	}
	timers, err := ask[*messages.Timers](ctx, n, inSession(session, &messages.ToSession{Command: &messages.ToSession_ListTimers{ListTimers: &messages.ListTimers{}}}))
	if err != nil {
		return err
	}
	f.timers = timers.JSON()
	jobs, err := ask[*messages.JobCount](ctx, n, inSession(session, &messages.ToSession{Command: &messages.ToSession_CountJobs{CountJobs: &messages.CountJobs{}}}))
	if err != nil {
		return err
	}
	f.jobs = jobs.JSON()
	for _, w := range f.workers {
		if w.Waiting != nil && w.Waiting.Kind == "budget" && f.budget == nil && f.steps == nil {
			v, err := ask[*messages.SessionView](ctx, n, inSession(session, &messages.ToSession{Command: &messages.ToSession_Describe{Describe: &messages.DescribeSession{}}}))
			if err != nil {
				return err
			}
			f.budget, f.steps = v.GetBudget().JSON(), make(map[string]*messages.BudgetViewJSON)
			for _, b := range v.GetStepBudgets() {
				f.steps[b.GetStep()] = b.GetBudget().JSON()
			}
		}
		if w.Waiting == nil || w.Waiting.Session == "" {
			continue
		}
		for _, other := range all.GetWorkers() {
			if other.GetSessionId() == w.Waiting.Session && other.GetTurn() != "" && f.heldSince == "" {
				f.heldSince, err = turnBegan(ctx, n, other)
			}
		}
	}
	return err
}

// turnBegan is when the open turn of a worker began: from then on it works in its workspaces.
func turnBegan(ctx context.Context, n node, w *messages.WorkerView) (string, error) {
	shown, err := ask[*messages.Shown](ctx, n, &messages.Show{Id: w.GetSessionId()})
	if err != nil {
		return "", err
	}
	for _, t := range shown.JSON().Turns {
		if t.ID == w.GetTurn() {
			return t.StartedAt, nil
		}
	}
	return "", nil
}

func (f *whyFacts) worker(id string) *messages.WorkerJSON {
	i := slices.IndexFunc(f.workers, func(w messages.WorkerJSON) bool { return w.ID == id })
	return &f.workers[max(i, 0)]
}

// noID says that nothing has an id, and which ones are near.
func noID(id string, known []string) *exitError {
	e := &exitError{code: exitMissing, what: "nothing has the id " + visible(id), hint: "troupe ls sessions, workers and calls list what there is"}
	if near := nearIDs(id, known); len(near) > 0 {
		e.hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return e
}

// nearIDs gives at most three ids that a person who wrote word may have meant: those of which it is a part, else those that differ little.
func nearIDs(word string, known []string) []string {
	var near []string
	for _, id := range known {
		if len(word) >= 4 && strings.Contains(id, strings.ToLower(word)) && len(near) < 3 && !slices.Contains(near, id) {
			near = append(near, id)
		}
	}
	if len(near) == 0 {
		near = config.Near(word, known)
	}
	return near
}
