package main

import (
	"cmp"
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/messages"
)

func newAudit(a *app) *cobra.Command {
	limit := int32(0)
	l := &listing{
		head:  []string{"AT", "KIND", "WHAT", "DECISION", "BY", "WHY", "OUTCOME", "TOOK", "SESSION"},
		empty: "nothing was decided yet",
	}
	cmd := formats(&cobra.Command{
		Use:   "audit [SESSION]",
		Short: "Who let what run, and what came of it",
		Long: `Who let what run, and what came of it, in the order of time: from the journal of a session, also one that was
closed, or of all.

Each call stands there with what decided about it, a rule or the trust in its workspace, who answered when somebody was asked, the hash of its arguments,
its outcome and how long it ran; so do workspaces that were attached and detached, changes of trust, of remembered rules and of toolsets,
timers, turns that were cancelled, commands in the background that somebody ended, and the beginning and the end of a session. BY is empty where no person was asked. A session whose records are damaged is told as far as it can be read, and named at the end.
-o json has all of it.`,
		Args: perhaps("SESSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				l.session = args[0]
			}
			return l.print(cmd.Context(), a, func(ctx context.Context, n node) (any, [][]string, error) {
				found, err := ask[*messages.Audit](ctx, n, &messages.ListAudit{SessionId: l.session, Limit: limit})
				if err != nil {
					return nil, nil, err
				}
				if found.GetTrimmed() {
					a.note("troupe: the oldest records are gone for good (data.trim)")
				}
				list, rows := found.JSON(), [][]string{}
				for _, e := range list {
					if e.Kind == "damage" {
						a.note("troupe: warning: session %s: %s (troupe verify says more)", visible(e.Session), e.What)
					}
					what := oneLine(e.What, 60)
					if e.Kind == "trust" && e.Workspace != "" { // in what
						what += " " + visible(e.Workspace)
					}
					rows = append(rows, []string{e.At, e.Kind, what, e.Decision, e.By, oneLine(e.Why, 60), cmp.Or(e.ErrorCode, e.Outcome), took(e), e.Session})
				}
				return list, rows, nil
			})
		},
	}, "table", "json", "yaml")
	cmd.Flags().Int32Var(&limit, "limit", 0, "only the newest `N`")
	return cmd
}

func took(e messages.AuditJSON) string {
	if e.DurationUS == 0 {
		return ""
	}
	return (time.Duration(e.DurationUS) * time.Microsecond).Round(time.Millisecond).String()
}
