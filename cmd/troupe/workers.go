package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/messages"
)

func newWorkers(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "workers", Short: "The agents of sessions: list, add, change, cancel, wait for, release or remove them"}
	cmd.AddCommand(
		listWorkers(a, "ls", "List the workers of all sessions, or of one"),
		newWorkerNew(a), newWorkerSet(a), newWorkerCancel(a), newWorkerWait(a), newRelease(a), newWorkerRemove(a),
	)
	return cmd
}

func newWorkerNew(a *app) *cobra.Command {
	m := &messages.SpawnWorker{}
	cmd := formats(&cobra.Command{
		Use:   "new SESSION",
		Short: "Add a worker to a session, with a conversation of its own",
		Args:  exactly("SESSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onSession(cmd.Context(), args[0], func(ctx context.Context, n node) error {
				v, err := ask[*messages.WorkerView](ctx, n, inSession(args[0], &messages.ToSession{Command: &messages.ToSession_SpawnWorker{SpawnWorker: m}}))
				if err != nil {
					return err
				}
				return a.printWorker(v)
			})
		},
	}, "table", "json", "yaml")
	cmd.Flags().StringVar(&m.Agent, "agent", "", "`AGENT` profile; default: the default one")
	cmd.Flags().StringVarP(&m.Model, "model", "m", "", "`MODEL`; default: the agent's, or the session's")
	cmd.Flags().BoolVar(&m.Isolate, "isolate", false, "it works in a copy of its own of the session's folder: see troupe diff and apply")
	return cmd
}

func newWorkerSet(a *app) *cobra.Command {
	m := &messages.ConfigureWorker{By: "user"}
	cmd := formats(&cobra.Command{
		Use:   "set WORKER",
		Short: "Change what a worker has from its next model call on: its tools, model, agent",
		Long: `Change what a worker has from its next model call on. What is not named stays.

--tools gives it just the tools that are named; '*' gives it those of its agent again. Trust decides about each call as before. A call that waits,
and whose tool it has no longer, is refused; one that runs goes on.`,
		Args: exactly("WORKER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if m.GetAgent() == "" && m.GetModel() == "" && m.GetMcp() == "" && len(m.GetTools()) == 0 {
				e := usage("troupe workers set: nothing is to be changed")
				e.hint = "name --tools, --model, --agent or --mcp"
				return e
			}
			return a.onWorker(cmd.Context(), args[0], func(ctx context.Context, n node, w *messages.WorkerView) error {
				m.WorkerId = w.GetId()
				v, err := ask[*messages.WorkerView](ctx, n, inSession(w.GetSessionId(), &messages.ToSession{Command: &messages.ToSession_Configure{Configure: m}}))
				if err != nil {
					return err
				}
				return a.printWorker(v)
			})
		},
	}, "table", "json", "yaml")
	cmd.Flags().StringSliceVar(&m.Tools, "tools", nil, "`NAMES` of the tools it has, with commas between")
	cmd.Flags().StringVarP(&m.Model, "model", "m", "", "`MODEL`")
	cmd.Flags().StringVar(&m.Agent, "agent", "", "`AGENT` profile")
	cmd.Flags().StringVar(&m.Mcp, "mcp", "", "on or off: whether it has the tools of its agent's MCP servers")
	return cmd
}

func newWorkerCancel(a *app) *cobra.Command {
	f := &cancelFlags{}
	cmd := formats(&cobra.Command{
		Use:   "cancel WORKER",
		Short: "Cancel the turn of one worker, and the inputs that wait behind it",
		Args:  exactly("WORKER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onWorker(cmd.Context(), args[0], func(ctx context.Context, n node, w *messages.WorkerView) error {
				return a.cancel(ctx, n, w.GetSessionId(), w.GetId(), f)
			})
		},
	}, "text", "json", "yaml")
	f.add(cmd)
	return cmd
}

func newWorkerWait(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "wait WORKER|SESSION",
		Short: "Wait until a worker, or all of a session, have nothing left to do",
		Args:  exactly("WORKER|SESSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if messages.ValidID(messages.SessionPrefix, args[0]) {
				return a.onSession(cmd.Context(), args[0], func(ctx context.Context, n node) error { return a.waitIdle(ctx, n, args[0], "") })
			}
			return a.onWorker(cmd.Context(), args[0], func(ctx context.Context, n node, w *messages.WorkerView) error {
				return a.waitIdle(ctx, n, w.GetSessionId(), w.GetId())
			})
		},
	}
}

// waitIdle waits in the process that works. Where none does, work that is open would be waited for in vain.
func (a *app) waitIdle(ctx context.Context, n node, session, worker string) error {
	if h, own := n.(*house); own && h.client == nil {
		all, err := ask[*messages.Workers](ctx, n, &messages.ListWorkers{SessionId: session})
		if err != nil {
			return err
		}
		for _, w := range all.GetWorkers() {
			if (worker == "" || w.GetId() == worker) && w.GetState() != "inactive" {
				return &exitError{
					code: exitAgain, what: fmt.Sprintf("worker %s is %s, and no process works on it", w.GetId(), w.GetState()),
					hint: "go on with: troupe run -s " + session,
				}
			}
		}
		return nil
	}
	_, err := ask[*messages.Ack](ctx, n, inSession(session, &messages.ToSession{Command: &messages.ToSession_WaitIdle{WaitIdle: &messages.WaitIdle{WorkerId: worker}}}))
	return err
}

func newWorkerRemove(a *app) *cobra.Command {
	reason, force := "", false
	cmd := &cobra.Command{
		Use:   "rm WORKER",
		Short: "Delete a worker: its turn is cancelled, and it takes nothing any more",
		Args:  exactly("WORKER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onWorker(cmd.Context(), args[0], func(ctx context.Context, n node, w *messages.WorkerView) error {
				if err := a.unapplied(ctx, n, w.GetSessionId(), w.GetId(), force); err != nil {
					return err
				}
				_, err := ask[*messages.Ack](ctx, n, inSession(w.GetSessionId(), &messages.ToSession{Command: &messages.ToSession_DeleteWorker{
					DeleteWorker: &messages.DeleteWorker{WorkerId: w.GetId(), By: "user", Reason: reason},
				}}))
				return err
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`WHY`, for the record")
	cmd.Flags().BoolVar(&force, "force", false, "also when its copy of the folder holds changes that were not applied")
	return cmd
}

func newRelease(a *app) *cobra.Command {
	return formats(&cobra.Command{
		Use:   "release WORKER",
		Short: "Let a quarantined worker try again",
		Long: `Let a quarantined worker try again.

A worker that panics three times without getting on, or in the middle of whose turn the process ended ten
times, is not started again by itself. Where a process serves the data directory, the worker goes on there at
once; else its turn goes on with: troupe run -s SESSION`,
		Args: exactly("WORKER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onWorker(cmd.Context(), args[0], func(ctx context.Context, n node, w *messages.WorkerView) error {
				v, err := ask[*messages.WorkerView](ctx, n, inSession(w.GetSessionId(), &messages.ToSession{Command: &messages.ToSession_ReleaseWorker{
					ReleaseWorker: &messages.ReleaseWorker{WorkerId: w.GetId(), By: "user"},
				}}))
				if err != nil {
					return err
				}
				if !w.GetQuarantined() {
					a.note("troupe: worker %s was not quarantined", w.GetId())
				}
				return a.printWorker(v)
			})
		},
	}, "table", "json", "yaml")
}

func inSession(id string, m *messages.ToSession) *messages.ToSession {
	m.SessionId = id
	return m
}

// onWorker finds a worker by its id alone and works on it: in the process that serves the data directory, else on
// the directory, where no agent begins anything meanwhile.
func (a *app) onWorker(ctx context.Context, id string, work func(ctx context.Context, n node, w *messages.WorkerView) error) error {
	loaded, err := a.load("")
	if err != nil {
		return err
	}
	none := func() error { return noWorker(id) }
	return a.look(ctx, loaded, none, func(ctx context.Context, n node) error {
		all, err := ask[*messages.Workers](ctx, n, &messages.ListWorkers{})
		if err != nil {
			return err
		}
		for _, w := range all.GetWorkers() {
			if w.GetId() == id {
				return work(ctx, n, w)
			}
		}
		return none()
	})
}

// onSession is onWorker for a session.
func (a *app) onSession(ctx context.Context, id string, work func(ctx context.Context, n node) error) error {
	loaded, err := a.load("")
	if err != nil {
		return err
	}
	return a.look(ctx, loaded, func() error { return noSession(id) }, work)
}

func noWorker(id string) error {
	return &exitError{code: exitMissing, what: fmt.Sprintf("no worker %s", visible(id)), hint: "troupe workers ls lists them"}
}

func (a *app) printWorker(v *messages.WorkerView) error {
	j := v.JSON()
	return a.emit(j, func(w io.Writer) error { return table(w, workerHead(), [][]string{workerRow(&j)}) })
}
