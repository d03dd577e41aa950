package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/messages"
)

func newRules(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rules",
		Short: "What answers to approvals left behind",
		Long: `What answers to approvals left behind.

An answer with a scope beyond once is remembered as a rule. It counts in the folder of its call and nowhere else, from the
next decision on: for the rest of the session (session), or in every session there, for one agent (agent) or for all (always). Rules of
the configuration and of --allow are not listed here.`,
	}
	cmd.AddCommand(newRulesList(a), newRulesRemove(a))
	return cmd
}

func newRulesList(a *app) *cobra.Command {
	l := &listing{
		head:  []string{"RULE_ID", "SCOPE", "RULE", "WHERE", "FOR", "BY", "SINCE"},
		empty: "nothing is remembered; troupe approve APPROVAL_ID --scope session|agent|always does",
	}
	cmd := formats(&cobra.Command{
		Use:   "ls",
		Short: "List the rules that answers left behind",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return l.print(cmd.Context(), a, func(ctx context.Context, n node) (any, [][]string, error) {
				found, err := ask[*messages.Rules](ctx, n, &messages.ListRules{SessionId: l.session})
				if err != nil {
					return nil, nil, err
				}
				list, rows := found.JSON(), [][]string{}
				for _, r := range list {
					rows = append(rows, []string{r.ID, r.Scope, r.Rule, r.Workspace, ruleFor(r), r.By, r.At})
				}
				return list, rows, nil
			})
		},
	}, "table", "json", "yaml")
	cmd.Flags().StringVarP(&l.session, "session", "s", "", "leave out the own rules of other sessions than `ID`")
	return cmd
}

// ruleFor is whose calls a rule is about.
func ruleFor(r messages.RuleJSON) string {
	switch {
	case r.Scope == "session":
		return r.Session
	case r.Agent != "":
		return "agent " + r.Agent
	}
	return "every agent"
}

// revokedRule is what `rules rm -o json` prints of one rule.
type revokedRule struct {
	ID    string `json:"id"`
	State string `json:"state"`
}

func newRulesRemove(a *app) *cobra.Command {
	return formats(&cobra.Command{
		Use:     "rm RULE_ID...",
		Aliases: []string{"remove"},
		Short:   "Take rules back",
		Long: `Take rules back.

Every later decision is made without them. Approvals that wait are not touched.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				e := usage("troupe rules rm: a RULE_ID is missing")
				e.hint = "troupe rules ls lists them"
				return e
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.revokeRules(cmd.Context(), args) },
	}, "text", "json", "yaml")
}

func (a *app) revokeRules(ctx context.Context, ids []string) error {
	loaded, err := a.load("")
	if err != nil {
		return err
	}
	none := func() error {
		return &exitError{code: exitMissing, what: "there is no rule " + visible(ids[0]), hint: "troupe rules ls lists them"}
	}
	return a.look(ctx, loaded, none, func(ctx context.Context, n node) error {
		done := []revokedRule{}
		for _, id := range ids {
			if _, err := n.Ask(ctx, &messages.RevokeRule{RuleId: id, By: "user"}); err != nil {
				return err
			}
			done = append(done, revokedRule{id, "revoked"})
		}
		return a.emit(done, func(w io.Writer) error {
			for _, one := range done {
				if _, err := fmt.Fprintf(w, "%s: revoked\n", one.ID); err != nil {
					return err
				}
			}
			return nil
		})
	})
}
