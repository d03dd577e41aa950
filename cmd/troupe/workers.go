package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/messages"
)

func newWorkers(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "workers", Short: "The agents of sessions: list them, or let a quarantined one try again"}
	cmd.AddCommand(listWorkers(a, "ls", "List the workers of all sessions, or of one"), newRelease(a))
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

func noWorker(id string) error {
	return &exitError{code: exitMissing, what: fmt.Sprintf("no worker %s", visible(id)), hint: "troupe workers ls lists them"}
}

func (a *app) printWorker(v *messages.WorkerView) error {
	j := v.JSON()
	return a.emit(j, func(w io.Writer) error { return table(w, workerHead(), [][]string{workerRow(&j)}) })
}
