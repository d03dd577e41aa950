package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

func newVerify(a *app) *cobra.Command {
	return formats(&cobra.Command{
		Use:   "verify [SESSION...]",
		Short: "Check what was written: is it all there, whole and in order?",
		Long: `Check what was written: is it all there, whole and in order?

Every record's checksum, the order of every journal, that each conversation can be rebuilt from its own,
and, without SESSION, whatever else the store holds: cursors, listings, timers, blobs, and that nothing is
missing that was acknowledged. Nothing is changed. It ends with 0 when everything holds together, with 1 when not.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			loaded, err := a.load("")
			if err != nil {
				return err
			}
			none := func() error {
				if len(args) > 0 {
					return noSession(args[0])
				}
				a.note("troupe: nothing was kept yet in %s", visible(loaded.Config.Data.Dir))
				return a.printVerified(&messages.Verified{})
			}
			err = a.look(cmd.Context(), loaded, none, func(ctx context.Context, n node) error {
				m := a.meter("verifying", func(n int64) string { return fmt.Sprintf("%d records", n) }, progressOf(n))
				v, err := ask[*messages.Verified](ctx, n, &messages.Verify{SessionIds: args})
				m.end()
				if err != nil {
					return err
				}
				return a.printVerified(v)
			})
			if errors.Is(err, persistence.ErrCorrupt) || errors.Is(err, persistence.ErrAckedDataMissing) { // it does not even open
				a.note("troupe: the store does not open; see what could be saved with: troupe repair")
				return a.printVerified(&messages.Verified{Findings: []*messages.Finding{{Problem: err.Error()}}})
			}
			return err
		},
	}, "text", "json", "yaml")
}

// progressOf is how far the house's store says that it has come; nil: the house is elsewhere.
func progressOf(n node) func() int64 {
	if h, ok := n.(*house); ok && h.rt != nil {
		return h.rt.Progress
	}
	return nil
}

func (a *app) printVerified(v *messages.Verified) error {
	j := v.JSON()
	err := a.emit(j, func(w io.Writer) error {
		for _, f := range j.Findings {
			where := "store: "
			if f.Stream != "" {
				where = fmt.Sprintf("%s at %d: ", visible(f.Stream), f.Seq)
			}
			if _, err := fmt.Fprintf(w, "%s%s\n", where, oneLine(f.Problem, 2000)); err != nil {
				return err
			}
		}
		_, err := fmt.Fprintf(w, "%d journals, %d records, %d findings\n", j.Streams, j.Records, len(j.Findings))
		return err
	})
	if err != nil {
		return err
	}
	if len(j.Findings) > 0 {
		return silent(exitFailed)
	}
	return nil
}
