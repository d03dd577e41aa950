package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/messages"
)

func newCalls(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "calls", Short: "Settle tool calls of which nobody knows whether they ran"}
	cmd.AddCommand(newResolve(a))
	return cmd
}

// resolvedCall is what `calls resolve -o json` prints.
type resolvedCall struct {
	ID         string `json:"id"`
	State      string `json:"state"`
	Resolution string `json:"resolution"`
	Session    string `json:"session"`
}

func newResolve(a *app) *cobra.Command {
	var note string
	cmd := formats(&cobra.Command{
		Use:   "resolve EXEC_ID retry|done|fail",
		Short: "Say what became of a call in doubt",
		Long: `Say what became of a call in doubt.

A crash cut the call off, and its policy is to ask a person. Look whether it happened, then say

  retry   run it again, with the same exec id
  done    it happened
  fail    it did not happen, and shall not

The first word counts. A session that is at work goes on at once, any other one with: troupe run -s ID.
troupe ls calls --state in_doubt lists the calls that wait.`,
		Args: exactly("EXEC_ID", "RESOLUTION"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.resolve(cmd.Context(), args[0], args[1], note) },
	}, "text", "json", "yaml")
	cmd.Flags().StringVar(&note, "note", "", "`TEXT` that the model reads along with it")
	return cmd
}

func (a *app) resolve(ctx context.Context, exec, word, note string) error {
	r, ok := messages.ResolutionNamed(word)
	if !ok {
		e := usage("troupe calls resolve: %q is no resolution", word)
		e.hint = "one of retry, done, fail"
		return e
	}
	loaded, err := a.load("")
	if err != nil {
		return err
	}
	none := func() error {
		return &exitError{code: exitMissing, what: fmt.Sprintf("no call %s waits for a person's word", visible(exec)), hint: "troupe ls calls --state in_doubt lists those that do"}
	}
	return a.look(ctx, loaded, none, func(ctx context.Context, n node) error {
		all, err := ask[*messages.Calls](ctx, n, &messages.ListCalls{State: "in_doubt"})
		if err != nil {
			return err
		}
		done := resolvedCall{ID: exec, State: "resolved", Resolution: word}
		for _, c := range all.GetCalls() {
			if c.GetExecId() == exec {
				done.Session = c.GetSessionId()
			}
		}
		if _, err := n.Ask(ctx, &messages.ResolveCall{ExecId: exec, Resolution: r, Note: note, By: "user"}); err != nil {
			return err
		}
		if err := a.emit(done, func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "%s: %s\n", exec, word)
			return err
		}); err != nil {
			return err
		}
		a.note("troupe: unless its session is at work, it goes on with: troupe run -s %s", done.Session)
		return nil
	})
}
