package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/badger"
)

// repairJSON is what `troupe repair -o json` prints.
type repairJSON struct {
	State string `json:"state"` // sound | damaged | repaired
	*badger.Repaired
}

func newRepair(a *app) *cobra.Command {
	var accept bool
	cmd := formats(&cobra.Command{
		Use:   "repair [--accept-loss]",
		Short: "Save what can be saved of a damaged store",
		Long: `Save what can be saved of a damaged store.

Without --accept-loss nothing is changed: it says which records of which conversations would be lost, and ends with 1.
With it a store is built of everything that still reads: a conversation that is damaged ends behind its last good
record, all others are whole. The damaged files are kept in a folder beside, with the report. A backup may
hold more: see troupe restore.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			loaded, err := a.load("")
			if err != nil {
				return err
			}
			if !dataExists(loaded) {
				return &exitError{code: exitMissing, what: "nothing was kept yet in " + visible(loaded.Config.Data.Dir)}
			}
			o, err := a.storeOptions(cmd.Context(), loaded)
			if err != nil {
				return err
			}
			m := a.meter("looking through the store", nil, nil)
			r, err := badger.Repair(cmd.Context(), o, badger.RepairOptions{Accept: accept, Needs: troupe.NeededStream})
			m.end()
			switch {
			case errors.Is(err, persistence.ErrLocked):
				e := heldError(loaded, false, err)
				e.hint = "end that process first (a server with: troupe stop): a store is repaired while nobody uses it"
				return e
			case err != nil:
				return storeError(err)
			}
			return a.printRepaired(r, accept)
		},
	}, "text", "json", "yaml")
	cmd.Flags().BoolVar(&accept, "accept-loss", false, "repair, and lose what cannot be saved")
	return cmd
}

func (a *app) printRepaired(r *badger.Repaired, accept bool) error {
	j := repairJSON{State: "damaged", Repaired: r}
	switch {
	case r.Nothing():
		j.State = "sound"
	case accept:
		j.State = "repaired"
	}
	if err := a.emit(j, func(w io.Writer) error { _, err := io.WriteString(w, repairText(&j)); return err }); err != nil {
		return err
	}
	if j.State == "damaged" {
		a.note("troupe: nothing was changed; to repair and lose this: troupe repair --accept-loss")
		return silent(exitFailed)
	}
	return nil
}

// repairText says what is wrong and what is lost, for people.
func repairText(j *repairJSON) string {
	var b strings.Builder
	r := j.Repaired
	if j.State == "sound" {
		fmt.Fprintf(&b, "nothing to repair: %d journals, %d records\n", r.Streams, r.Records)
		return b.String()
	}
	list := func(title string, lines []string) {
		if len(lines) > 0 {
			b.WriteString(title + "\n")
		}
		for _, l := range lines {
			b.WriteString("  " + oneLine(l, 1000) + "\n")
		}
	}
	list("damaged:", r.Damaged)
	list("put together again, without loss:", r.Mended)
	var lost []string
	for _, l := range r.Lost {
		lost = append(lost, lossText(l))
	}
	verb := map[string]string{"damaged": "would be lost:", "repaired": "lost:"}[j.State]
	list(verb, append(lost, r.Other...))
	if r.Acked > r.Held {
		fmt.Fprintf(&b, "%d commits were acknowledged, the store holds %d\n", r.Acked, r.Held)
		b.WriteString("  what else was in them nothing names: tokens may be among it (see troupe token ls: without any, a server on loopback lets in whoever is on this machine), and projects (troupe project list)\n")
	}
	if len(r.Lost)+len(r.Other) == 0 {
		b.WriteString(verb + " no record that anything tells of\n")
	}
	fmt.Fprintf(&b, "whole: %d journals, %d records\n", r.Streams, r.Records)
	if r.Kept != "" {
		fmt.Fprintf(&b, "the damaged files and this report are kept in %s\n", visible(r.Kept))
	}
	return b.String()
}

func lossText(l badger.Loss) string {
	text := fmt.Sprintf("%s: records %d to %d", l.Stream, l.From, l.To)
	if l.From == 1 {
		text = fmt.Sprintf("%s: all %d records", l.Stream, l.To)
	}
	if l.Session != "" {
		text += " (of session " + l.Session + ")"
	}
	return text + ": " + l.Why
}
