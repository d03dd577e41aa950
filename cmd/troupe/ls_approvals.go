package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/client"
	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/messages"
)

func newListApprovals(a *app) *cobra.Command {
	l := &listing{head: approvalHead(), empty: "nothing waits for an approval"}
	watch := false
	cmd := formats(&cobra.Command{
		Use:   "approvals",
		Short: "List the calls that wait for an approval",
		Long: `List the calls that wait for an approval, and how long each still waits before it is refused, if it does not wait for ever.

With --watch the list is renewed each second on a terminal, until Ctrl-C. Elsewhere each approval is a line when it is asked for, and
another one when it waits no longer.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if watch {
				return a.watchList(cmd.Context(), l.session)
			}
			return l.print(cmd.Context(), a, func(ctx context.Context, n node) (any, [][]string, error) {
				found, err := ask[*messages.Approvals](ctx, n, &messages.ListApprovals{SessionId: l.session})
				if err != nil {
					return nil, nil, err
				}
				all := found.JSON()
				return all, approvalRows(all, time.Now()), nil
			})
		},
	}, "table", "json", "yaml")
	cmd.Flags().StringVarP(&l.session, "session", "s", "", "only those of the session `ID`")
	cmd.Flags().BoolVar(&watch, "watch", false, "go on: say what is asked for, and what waits no longer")
	return cmd
}

func approvalHead() []string {
	return []string{"APPROVAL", "STATE", "TOOL", "ASKS", "AT", "EXPIRES", "WORKER", "SESSION"}
}

func approvalRows(all []messages.ApprovalJSON, now time.Time) [][]string {
	rows := [][]string{}
	for i := range all {
		v := &all[i]
		rows = append(rows, []string{v.ID, v.State, v.Tool, approvalAsks(v), v.At, expiresIn(v.ExpiresAt, now), v.Worker, v.Session})
	}
	return rows
}

// approvalAsks is what a call is about, in a few words.
func approvalAsks(v *messages.ApprovalJSON) string {
	if strings.HasPrefix(v.Worker, messages.RunPrefix) { // a run asks, by its own words
		asks, _, _ := strings.Cut(v.Preview, "\n\n") // and what it shows
		return oneLine(asks, 60)
	}
	if v.Kind == "command" {
		return oneLine(v.Preview, 60)
	}
	return oneLine(summary(v.Arguments), 60)
}

// expiresIn is how long it is until a time, in words.
func expiresIn(at string, now time.Time) string {
	t, err := time.Parse(time.RFC3339Nano, at)
	if err != nil {
		return "never"
	}
	return "in " + left(t.Sub(now))
}

// left is how much time is left, in whole seconds: one that has begun counts.
func left(d time.Duration) string {
	return max(0, (d + time.Second - 1).Truncate(time.Second)).String()
}

const (
	// watchEvery is how often who works on the data directory is asked what waits.
	watchEvery = time.Second
	// watchStore is every how many times the store is read, where nobody works on it.
	watchStore = 5
)

// watchList shows what waits for an approval until somebody has seen enough.
func (a *app) watchList(ctx context.Context, session string) error {
	if a.flags.format != "table" {
		e := usage("troupe ls approvals: --watch prints no %s", a.flags.format)
		e.hint = "leave -o out, or --watch"
		return e
	}
	loaded, err := a.load("")
	if err != nil {
		return err
	}
	if session != "" && !kept(loaded) {
		return noSession(session)
	}
	show := a.approvalLines()
	if a.outTerm {
		show = a.approvalTable()
	}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var all []messages.ApprovalJSON
	for idle := 0; ; {
		live, found, err := a.askApprovals(ctx, loaded, session, idle%watchStore == 0)
		switch {
		case ctx.Err() != nil:
			return nil // it was looked at for as long as somebody wanted
		case err != nil:
			return err
		case live:
			all, idle = found, 0
		case idle%watchStore == 0:
			all = found
			fallthrough
		default:
			idle++
		}
		if err := show(all); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// askApprovals asks who works on the data directory, which is live; where nobody does, the store, if it is to be read.
func (a *app) askApprovals(ctx context.Context, loaded *config.Loaded, session string, store bool) (live bool, all []messages.ApprovalJSON, err error) {
	list := func(ctx context.Context, n node) error {
		found, err := ask[*messages.Approvals](ctx, n, &messages.ListApprovals{SessionId: session})
		all = found.JSON()
		return err
	}
	n, done, err := a.topNode(ctx, loaded)
	switch {
	case errors.Is(err, client.ErrNoHolder) && store:
		return false, all, a.look(ctx, loaded, func() error { return nil }, list)
	case errors.Is(err, client.ErrNoHolder):
		return false, nil, nil
	case err != nil:
		return false, nil, err
	}
	err = list(ctx, n)
	if cerr := done(); err == nil && cerr != nil {
		a.note("troupe: warning: %v", cerr)
	}
	return true, all, err
}

// approvalTable prints the list over the one before, where the terminal can.
func (a *app) approvalTable() func(all []messages.ApprovalJSON) error {
	draw := a.redrawn()
	return func(all []messages.ApprovalJSON) error {
		width, height := a.size()
		var out bytes.Buffer
		now := time.Now()
		fmt.Fprintf(&out, "%s  %s; answer with: troupe approve ID (or deny)\n", now.Format(time.TimeOnly), count(len(all), "call waits for an approval", "calls wait for an approval"))
		if len(all) > 0 {
			if err := table(&out, approvalHead(), approvalRows(all[:min(len(all), height)], now)); err != nil {
				return err
			}
		}
		return draw(narrowed(out.String(), width))
	}
}

// approvalLines prints what has changed.
func (a *app) approvalLines() func(all []messages.ApprovalJSON) error {
	var before []string
	return func(all []messages.ApprovalJSON) error {
		var now []string
		text := ""
		for i := range all {
			v := &all[i]
			now = append(now, v.ID)
			if !slices.Contains(before, v.ID) {
				until := ""
				if v.ExpiresAt != "" {
					until = ", until " + v.ExpiresAt
				}
				text += visible(fmt.Sprintf("%s waits%s: %s(%s), of session %s", v.ID, until, v.Tool, approvalAsks(v), v.Session)) + "\n"
			}
		}
		for _, id := range before {
			if !slices.Contains(now, id) {
				text += visible(id) + " waits no longer\n"
			}
		}
		before = now
		return written(io.WriteString(a.out, text))
	}
}
