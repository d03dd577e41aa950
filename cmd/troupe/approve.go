package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
)

// answeredApproval is what `approve -o json` prints of one approval.
type answeredApproval struct {
	messages.ApprovalJSON
	Decision string `json:"decision"`
	Scope    string `json:"scope"`
	Choice   string `json:"choice,omitempty"` // of a pipeline's question
}

// approving is what `approve` and `deny` were told.
type approving struct {
	decision            messages.Decision_Value
	reason, scope, rule string
}

// newApprove is `troupe approve` or `troupe deny`, which differ in what they say.
func newApprove(a *app, yes bool) *cobra.Command {
	d := messages.Decision_APPROVED
	use, short, does := "approve", "Let calls run that wait for an approval", "They run as they are shown, and not if what they are about has changed since."
	if !yes {
		d = messages.Decision_REJECTED
		use, short, does = "deny", "Refuse calls that wait for an approval", "The model is told no, and its turn goes on."
	}
	how := approving{decision: d}
	cmd := formats(&cobra.Command{
		Use:   use + " APPROVAL_ID...",
		Short: short,
		Long: short + ".\n\n" + does + ` What each would do is printed first.
The first answer counts. A session that is at work goes on at once, any other one with: troupe run -s ID, or, when a pipeline
asks: troupe pipeline run --resume RUN. Of a pipeline's question --reason names the choice.
troupe ls approvals lists what waits.

With --scope the answer is remembered as a rule: the narrowest one that covers the call, in the folder of the call. A call
of which no rule can say just this is not answered then. troupe rules ls lists what is remembered.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				e := usage("troupe %s: an APPROVAL_ID is missing", use)
				e.hint = "troupe ls approvals lists them"
				return e
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.approve(cmd.Context(), how, args) },
	}, "text", "json", "yaml")
	cmd.Flags().StringVar(&how.reason, "reason", "", "`TEXT` that the model reads with a refusal, and the journal keeps")
	cmd.Flags().StringVar(&how.scope, "scope", "", "how long the answer holds: once, session, agent or always")
	if yes {
		cmd.Flags().StringVar(&how.rule, "rule", "", "`RULE` to remember, of those that the call offers, instead of the exact one")
	}
	return cmd
}

func (a *app) approve(ctx context.Context, how approving, ids []string) error {
	switch how.scope {
	case "", "once", "session", "agent", "always":
	default:
		e := usage("--scope %s: there is no such scope", visible(how.scope))
		e.hint = "one of once, session, agent, always"
		return e
	}
	loaded, err := a.load("")
	if err != nil {
		return err
	}
	none := func() error {
		return &exitError{code: exitMissing, what: "there is no approval " + visible(ids[0]), hint: "troupe ls approvals lists those that wait for an answer"}
	}
	return a.look(ctx, loaded, none, func(ctx context.Context, n node) error {
		all, err := ask[*messages.Approvals](ctx, n, &messages.ListApprovals{})
		if err != nil {
			return err
		}
		done := []answeredApproval{}
		for _, id := range ids {
			m := &messages.ResolveApproval{ApprovalId: id, Decision: how.decision, Message: how.reason, By: "user", Scope: how.scope, Rule: how.rule}
			one := answeredApproval{messages.ApprovalJSON{ID: id}, conversation.DecisionName(how.decision), cmp.Or(how.scope, "once"), ""}
			for _, v := range all.GetApprovals() {
				if v.GetApprovalId() == id { // what is shown is what is answered
					m.ArgsHash, one.ApprovalJSON, one.Choice = v.GetArgsHash(), v.JSON(), chosen(v, m)
					a.note("%s", approvalText(v))
					if text := leaves(v, m); text != "" {
						a.note("%s", text)
					}
				}
			}
			if _, err := n.Ask(ctx, m); err != nil {
				return err
			}
			one.State = "answered"
			done = append(done, one)
		}
		if err := a.emit(done, func(w io.Writer) error {
			for _, one := range done {
				held := ""
				if one.Scope != "once" {
					held = ", and remembered: " + one.Scope
				}
				if _, err := fmt.Fprintf(w, "%s: %s%s\n", one.ID, cmp.Or(visible(one.Choice), one.Decision), held); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
		goOn, err := goOnWith(ctx, n, done[0].Session)
		if err == nil {
			a.note("troupe: unless its session is at work, it goes on with: %s", goOn)
		}
		return err
	})
}

// chosen is what an answer means to the question of a pipeline: the choice that it names, else the first one for yes and the last one for no.
func chosen(v *messages.ApprovalView, m *messages.ResolveApproval) string {
	var question struct {
		Choices []string `json:"choices"`
	}
	if v.GetWorkerId() != messages.RunOf(v.GetSessionId()) || json.Unmarshal([]byte(v.GetArguments()), &question) != nil || len(question.Choices) == 0 {
		return ""
	}
	return messages.ChoiceOf(question.Choices, m)
}

// leaves says which rule an answer is to leave behind, and where that counts; "" for one that holds once. Whether it can be
// written, the answer says.
func leaves(v *messages.ApprovalView, m *messages.ResolveApproval) string {
	rules := v.GetRules()
	if m.GetScope() == "" || m.GetScope() == "once" || len(rules) == 0 {
		return ""
	}
	rule := cmp.Or(m.GetRule(), rules[len(rules)-1])
	if m.GetDecision() == messages.Decision_REJECTED {
		rule = "deny " + rules[len(rules)-1]
	}
	return fmt.Sprintf("troupe: remembered (%s), in %s: %s", m.GetScope(), visible(cmp.Or(v.GetWorkspace(), "the session's primary folder")), visible(rule))
}

// approvalText shows a person what a call would do.
func approvalText(v *messages.ApprovalView) string {
	var b strings.Builder
	who := ""
	if v.GetParent() != "" {
		who = fmt.Sprintf(" of agent %s (%s), to which %s delegated,", visible(cmp.Or(v.GetAgent(), "default")), v.GetWorkerId(), v.GetParent())
	}
	if v.GetWorkerId() == messages.RunOf(v.GetSessionId()) { // the question of a pipeline
		fmt.Fprintf(&b, "troupe: step %s of %s asks:", visible(v.GetExecId()), v.GetWorkerId())
	} else {
		fmt.Fprintf(&b, "troupe: %s%s wants to run in %s:", visible(v.GetTool()), who, visible(v.GetWorkspace()))
	}
	for line := range strings.Lines(strings.TrimRight(v.GetPreview(), "\n")) {
		b.WriteString("\n  " + visible(strings.TrimRight(line, "\n")))
	}
	if at := v.GetExpiresAtUnixMs(); at > 0 {
		fmt.Fprintf(&b, "\n  unanswered it is refused in %s, at %s", left(time.Until(time.UnixMilli(at))), messages.FormatTime(at))
	}
	return b.String()
}
