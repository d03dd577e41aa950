package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/messages"
)

func newVerify(a *app) *cobra.Command {
	return formats(&cobra.Command{
		Use:   "verify [SESSION...]",
		Short: "Check what was written: is it all there, whole and in order?",
		Long: `Check what was written: is it all there, whole and in order?

Every record's checksum, the order of every journal, and that each conversation can be rebuilt from
its own. Nothing is changed. It ends with 0 when everything holds together, with 1 when not.`,
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
			return a.look(cmd.Context(), loaded, none, func(ctx context.Context, n node) error {
				v, err := ask[*messages.Verified](ctx, n, &messages.Verify{SessionIds: args})
				if err != nil {
					return err
				}
				return a.printVerified(v)
			})
		},
	}, "text", "json", "yaml")
}

func (a *app) printVerified(v *messages.Verified) error {
	j := v.JSON()
	err := a.emit(j, func(w io.Writer) error {
		for _, f := range j.Findings {
			if _, err := fmt.Fprintf(w, "%s at %d: %s\n", visible(f.Stream), f.Seq, oneLine(f.Problem, 500)); err != nil {
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
