package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/messages"
)

func newCompact(a *app) *cobra.Command {
	var worker string
	cmd := formats(&cobra.Command{
		Use:   "compact SESSION",
		Short: "Replace the older turns of a conversation by a summary",
		Long: `Replace the older turns of a conversation by a summary.

The session's model writes the summary, and is sent that and the newest turns from now on. Nothing is
lost: the journal, and what troupe show prints, keep every turn, unless data.trim says for how long. While a turn runs, it is waited for.
Without being told, an agent does the same when a request comes near to the model's context
(limits.compact_at).`,
		Args: exactly("SESSION"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.compact(cmd.Context(), args[0], worker) },
	}, "text", "json", "yaml")
	cmd.Flags().StringVar(&worker, "worker", "", "the agent whose conversation it is, by its id; default: the session's first (see troupe ls workers)")
	return cmd
}

// compact is `troupe compact`.
func (a *app) compact(ctx context.Context, session, worker string) error {
	loaded, err := a.load("")
	if err != nil {
		return err
	}
	if !messages.ValidID(messages.SessionPrefix, session) || !kept(loaded) {
		return noSession(session)
	}
	h, err := a.openHouse(ctx, opening{loaded: loaded, models: newModels(loaded, a.secrets), work: true})
	if err != nil {
		return err
	}
	var done *messages.Compacted
	err = h.during(ctx, func(ctx context.Context) error {
		m := &messages.CompactHistory{By: "user", WorkerId: worker}
		done, err = ask[*messages.Compacted](ctx, h, &messages.ToSession{SessionId: session, Command: &messages.ToSession_Compact{Compact: m}})
		return err
	})
	if cerr := h.close(ctx); err == nil && cerr != nil {
		a.note("troupe: warning: %v", cerr)
	}
	switch {
	case errors.Is(err, context.Canceled):
		return &exitError{code: exitInterrupted, what: "interrupted; the conversation is as it was"}
	case err != nil:
		return err
	}
	return a.tellCompacted(session, done)
}

func (a *app) tellCompacted(session string, done *messages.Compacted) error {
	j := done.JSON()
	err := a.emit(j, func(w io.Writer) error {
		if !j.Compacted {
			return nil
		}
		_, err := fmt.Fprintf(w, "%d -> %d tokens\n", j.TokensBefore, j.TokensAfter)
		return err
	})
	switch {
	case err != nil:
		return err
	case !j.Compacted:
		a.note("troupe: nothing was compacted: %s", oneLine(j.Reason, 500))
	default:
		a.note("%s", compactedNote(j.Fallback, j.TokensBefore, j.TokensAfter, j.Reason))
		a.note("troupe show %s prints every turn still", visible(session))
	}
	return nil
}

// compactedNote says in a line what became of the older turns of a conversation.
func compactedNote(dropped bool, before, after int64, reason string) string {
	if dropped {
		return fmt.Sprintf("troupe: no summary could be made, so the oldest turns are not sent any more (%d -> %d tokens): %s", before, after, oneLine(reason, 300))
	}
	return fmt.Sprintf("troupe: the older turns are sent as a summary from now on (%d -> %d tokens)", before, after)
}
