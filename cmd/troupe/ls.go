package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/messages"
)

func newList(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Short: "List sessions, workers, workspaces, files, tool calls, jobs or approvals"}
	cmd.AddCommand(newListSessions(a), newListWorkers(a), newListWorkspaces(a, "workspaces", "List the workspaces of sessions"), newListFiles(a), newListCalls(a), newListJobs(a), newListApprovals(a), newListRuns(a))
	return cmd
}

// listing is one of the lists: a question, its answer as JSON and as rows.
type listing struct {
	dir, session, state string
	head                []string
	empty               string // what to do when there is nothing
	partial             bool   // something could not be read
}

// print runs the question and prints what it gives; both forms come from the same answer.
func (l *listing) print(ctx context.Context, a *app, ask func(ctx context.Context, n node) (any, [][]string, error)) error {
	loaded, err := a.load(l.dir)
	if err != nil {
		return err
	}
	none := func() error {
		a.note("troupe: %s", l.empty)
		return a.emit([]any{}, func(io.Writer) error { return nil })
	}
	if l.session != "" && !kept(loaded) {
		return noSession(l.session)
	}
	return a.look(ctx, loaded, none, func(ctx context.Context, n node) error {
		list, rows, err := ask(ctx, n)
		if err != nil {
			return err
		}
		a.tellDamage(ctx, n)
		switch {
		case l.partial && len(rows) == 0: // whether there is anything is not known
			err = a.emit([]any{}, func(io.Writer) error { return nil })
		case len(rows) == 0:
			return none()
		default:
			err = a.emit(list, func(w io.Writer) error { return table(w, l.head, rows) })
		}
		if err == nil && l.partial {
			return silent(exitPartial)
		}
		return err
	})
}

func noSession(id string) error {
	return &exitError{code: exitMissing, what: fmt.Sprintf("no session %s", visible(id)), hint: "troupe ls sessions lists them"}
}

func stateFlag(cmd *cobra.Command, state *string) {
	cmd.Flags().StringVar(state, "state", "", "only those in `STATE`")
}

func newListSessions(a *app) *cobra.Command {
	l := &listing{
		head:  []string{"SESSION", "STATE", "UPDATED", "TURNS", "MODEL", "FOLDER", "TITLE"},
		empty: `there are no sessions yet; begin one with: troupe run "..." (or see one at work: troupe tour)`,
	}
	cmd := formats(&cobra.Command{
		Use:   "sessions",
		Short: "List the sessions, the newest first",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := &messages.ListSessions{}
			if l.dir != "" {
				addr, _, err := a.folder(l.dir)
				if err != nil {
					return err
				}
				q.Folder, l.empty = addr.Canonical, "there are no sessions in this folder; begin one with: troupe run \"...\" -C "+visible(l.dir)
			}
			return l.print(cmd.Context(), a, func(ctx context.Context, n node) (any, [][]string, error) {
				found, err := ask[*messages.Sessions](ctx, n, q)
				if err != nil {
					return nil, nil, err
				}
				list, rows := []messages.SessionJSON{}, [][]string{}
				for _, s := range found.JSON() {
					if l.state == "" || l.state == s.State {
						list = append(list, s)
						rows = append(rows, []string{s.ID, s.State, s.UpdatedAt, strconv.Itoa(int(s.Turns)), s.Model, s.Folder, s.Title})
					}
				}
				return list, rows, nil
			})
		},
	}, "table", "json", "yaml")
	cmd.Flags().StringVarP(&l.dir, "dir", "C", "", "only those of the folder `DIR`")
	stateFlag(cmd, &l.state)
	return cmd
}

func newListWorkers(a *app) *cobra.Command {
	return listWorkers(a, "workers", "List the workers: the agents of all sessions, or of one")
}

func workerHead() []string {
	return []string{"WORKER", "STATE", "AGENT", "MODEL", "TURNS", "LAST", "SESSION", "DELEGATED BY", "ERROR"}
}

func workerRow(w *messages.WorkerJSON) []string {
	why := ""
	if w.Quarantined {
		why = oneLine(w.LastError, 80)
	}
	return []string{w.ID, w.State, w.Agent, w.Model, strconv.Itoa(int(w.Turns)), w.LastOutcome, w.Session, w.Parent, why}
}

func listWorkers(a *app, word, short string) *cobra.Command {
	l := &listing{
		head:  workerHead(),
		empty: `there are no workers; a session has one: troupe run "..."`,
	}
	cmd := formats(&cobra.Command{
		Use:   word + " [SESSION]",
		Short: short,
		Args:  perhaps("SESSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if l.session != "" && l.session != args[0] {
					return usage("%s: session %s and --session %s are two", cmd.CommandPath(), args[0], l.session)
				}
				l.session = args[0]
			}
			return l.print(cmd.Context(), a, func(ctx context.Context, n node) (any, [][]string, error) {
				found, err := ask[*messages.Workers](ctx, n, &messages.ListWorkers{SessionId: l.session})
				if err != nil {
					return nil, nil, err
				}
				list, rows := []messages.WorkerJSON{}, [][]string{}
				for _, w := range found.JSON() {
					if l.state == "" || l.state == w.State {
						list = append(list, w)
						rows = append(rows, workerRow(&w))
						if w.Quarantined {
							a.note("troupe: worker %s is quarantined; let it try again with: troupe workers release %s", w.ID, w.ID)
						}
					}
				}
				return list, rows, nil
			})
		},
	}, "table", "json", "yaml")
	cmd.Flags().StringVarP(&l.session, "session", "s", "", "only those of the session `ID`")
	stateFlag(cmd, &l.state)
	return cmd
}

func newListCalls(a *app) *cobra.Command {
	l := &listing{
		head:  []string{"CALL", "STATE", "TOOL", "ARGUMENTS", "AT", "SESSION"},
		empty: "there are no tool calls",
	}
	states := []string{"received", "requested", "executing", "succeeded", "failed", "in_doubt"}
	cmd := formats(&cobra.Command{
		Use:   "calls",
		Short: "List the tool calls of all sessions, or of one",
		Long: `List the tool calls of all sessions, or of one.

What a damaged journal held is named on stderr, and the exit code is 2 then: the calls of the others are listed.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := oneOf("--state", l.state, states); err != nil {
				return err
			}
			return l.print(cmd.Context(), a, func(ctx context.Context, n node) (any, [][]string, error) {
				found, err := ask[*messages.Calls](ctx, n, &messages.ListCalls{SessionId: l.session, State: l.state})
				if err != nil {
					return nil, nil, err
				}
				l.partial = a.tellUnread(found)
				rows := [][]string{}
				for _, c := range found.JSON() {
					rows = append(rows, []string{c.ID, c.State, c.Tool, summary(c.Arguments), c.At, c.Session})
				}
				return found.JSON(), rows, nil
			})
		},
	}, "table", "json", "yaml")
	cmd.Flags().StringVarP(&l.session, "session", "s", "", "only those of the session `ID`")
	cmd.Flags().StringVar(&l.state, "state", "", "only those in `STATE`: "+strings.Join(states, ", "))
	return cmd
}

// oneOf refuses a word that is not among the known ones. "" is none.
func oneOf(flag, word string, known []string) error {
	for _, k := range known {
		if word == k || word == "" {
			return nil
		}
	}
	e := usage("%s %q: there is no such value", flag, word)
	e.hint = "one of " + strings.Join(known, ", ")
	return e
}
