package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/messages"
)

// inputModes are the words for what becomes of a prompt while a turn is open, the default first.
func inputModes() []string { return []string{"queue", "steer", "interrupt", "reject"} }

// inputMode is the mode that was asked for; check has seen that there is such a one.
func (f *runFlags) inputMode() messages.InputAccepted_Mode {
	return messages.InputAccepted_Mode(messages.InputAccepted_Mode_value[strings.ToUpper(f.mode)])
}

// checkMode refuses a mode that there is not, and one where no turn can be open.
func (f *runFlags) checkMode(cmd *cobra.Command) error {
	if !cmd.Flags().Changed("mode") {
		return nil
	}
	if !slices.Contains(inputModes(), f.mode) {
		e := usage("troupe run: --mode %q: there is no such mode", f.mode)
		e.hint = "one of " + strings.Join(inputModes(), ", ")
		return e
	}
	if f.session == "" && !f.resume {
		e := usage("troupe run: --mode %s is for a session that there is", f.mode)
		e.hint = "name it with -s ID or --continue; a new session has no open turn"
		return e
	}
	return nil
}

// onlyWatches says that the run has asked for nothing: it shows a turn that is another's, and has no question of it before it, at which Ctrl-C ends the turn.
func (r *runner) onlyWatches() bool {
	return r.create == nil && r.parts == nil && r.repairs == 0 && !r.unanswered
}

// forsake is done about the turn of a run that was interrupted and lives in another process, and says how the session goes on: a
// turn that others began stays theirs, also where it is only watched, a prompt that waits behind one is taken back, and a turn of its own is cancelled.
func (r *runner) forsake(ctx context.Context, n node) (goOn string) {
	if r.joined || r.onlyWatches() {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime/2)
	defer cancel()
	if r.create == nil && r.parts != nil && r.turn == "" {
		m := &messages.WithdrawInput{InputId: r.input, By: "user"}
		_, err := n.Ask(ctx, inSession(r.session, &messages.ToSession{Command: &messages.ToSession_WithdrawInput{WithdrawInput: m}}))
		if err == nil {
			return ` "..." (the prompt was taken back)`
		}
		if r.mode == messages.InputAccepted_STEER { // it may have joined a turn that others began, and nothing was seen of it yet
			r.a.note("troupe: warning: the prompt was not taken back: %s", visible(err.Error()))
			return ""
		}
	}
	m := &messages.CancelSession{By: "user", Reason: "interrupted"}
	if _, err := n.Ask(ctx, inSession(r.session, &messages.ToSession{Command: &messages.ToSession_Cancel{Cancel: m}})); err != nil {
		r.a.note("troupe: warning: the turn was not cancelled: %v", err)
	}
	return ` "..." (its turn was cancelled)`
}
