package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/internal/bench"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// benchFlags are the flags of `troupe bench`.
type benchFlags struct {
	agents, turns, long int
	only                []string
	in                  string
	all                 bool // --only was not given
}

func newBench(a *app) *cobra.Command {
	f := &benchFlags{}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure troupe on this machine",
		Long: `Measure troupe on this machine: turns of many agents side by side, what a turn costs as its conversation
grows, and how agents go on after their process was killed; and the memory of an agent that works, rests or has left memory.

A turn is a prompt, a model call, a call of read_file and a second model call, all of it synced to the disk. The answers come
from a script over real HTTP on the loopback interface: no language model is running, no key is needed, and nothing
that is configured plays a part. Data and folders are temporary, and removed at the end, also after Ctrl-C.

  troupe bench                                  # a few seconds
  troupe bench --agents 1000 --turns 4 --only agents
  troupe bench --in DIR -o json                 # on the disk of DIR`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.all = !cmd.Flags().Changed("only")
			return a.bench(cmd.Context(), f)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&f.agents, "agents", 50, "`N` agents side by side")
	flags.IntVar(&f.turns, "turns", 6, "`N` turns of each")
	flags.IntVar(&f.long, "long", 200, "`N` turns of the conversation that grows, from 10")
	flags.StringSliceVar(&f.only, "only", nil, "`PARTS` to measure: agents, flatness, recovery (default: all)")
	flags.StringVar(&f.in, "in", "", "`DIR` to make the temporary folder in: its disk is measured (default: the system's for temporary files)")
	return formats(cmd, "text", "json", "yaml")
}

// options refuses what cannot be measured.
func (f *benchFlags) options(a *app) (bench.Options, error) {
	o := bench.Options{Agents: f.agents, Turns: f.turns, Long: f.long}
	for _, name := range f.only {
		if !slices.Contains(bench.Parts(), bench.Part(name)) {
			e := usage("troupe bench: --only %s is nothing that is measured", name)
			e.hint = "one or more of agents, flatness, recovery"
			if near := config.Near(name, []string{"agents", "flatness", "recovery"}); len(near) > 0 {
				e.hint = "did you mean " + strings.Join(near, " or ") + "?"
			}
			return o, e
		}
		o.Parts = append(o.Parts, bench.Part(name))
	}
	switch {
	case a.flags.data != "":
		e := usage("troupe bench: --data is nobody's to measure in")
		e.hint = "--in DIR makes a temporary folder in DIR, on the disk of which is measured"
		return o, e
	case f.agents < 1 || f.agents > bench.MaxAgents:
		return o, usage("troupe bench: --agents %d is not from 1 to %d", f.agents, bench.MaxAgents)
	case f.turns < 1 || f.turns > bench.MaxTurns:
		return o, usage("troupe bench: --turns %d is not from 1 to %d", f.turns, bench.MaxTurns)
	case f.long < bench.MinLong || f.long > bench.MaxTurns:
		return o, usage("troupe bench: --long %d is not from %d to %d", f.long, bench.MinLong, bench.MaxTurns)
	case !f.all && len(o.Parts) == 0:
		e := usage("troupe bench: --only names nothing")
		e.hint = "one or more of agents, flatness, recovery; without it, all are measured"
		return o, e
	}
	return o, nil
}

// bench measures in a folder of its own, which it removes whatever happens.
func (a *app) bench(ctx context.Context, f *benchFlags) error {
	o, err := f.options(a)
	if err != nil {
		return err
	}
	if o.Dir, err = os.MkdirTemp(f.in, "troupe-bench-"); err != nil {
		code := exitIO
		if f.in != "" && errors.Is(err, os.ErrNotExist) {
			code = exitMissing
		}
		return &exitError{code: code, what: "make a temporary folder: " + err.Error(), hint: benchElsewhere, err: err}
	}
	var refused *messages.Failure
	r, err := a.benchRun(ctx, o)
	if rerr := os.RemoveAll(o.Dir); rerr != nil {
		a.note("troupe: warning: %v", rerr)
	}
	switch {
	case errors.Is(err, persistence.ErrFull), errors.As(err, &refused) && refused.GetCode() == messages.CodeFull:
		return &exitError{code: exitIO, what: err.Error(), hint: benchElsewhere, err: err}
	case err != nil:
		return err
	}
	width, _ := a.size()
	if err := a.emit(r, func(w io.Writer) error { return benchText(w, r, width) }); err != nil {
		return err
	}
	if v := r.Recovery; v != nil && v.Lost > 0 {
		return &exitError{code: exitFailed, what: count(v.Lost, "turn") + " that had been reported as done did not survive the kill", hint: "troupe chaos finds out more; this is a defect of troupe"}
	}
	return nil
}

// benchElsewhere is what to do about a disk that cannot be measured on.
const benchElsewhere = "--in DIR measures on the disk of DIR, in a folder that is removed"

// benchRun measures, and tells what it is at, and how fast, where it takes longer.
func (a *app) benchRun(ctx context.Context, o bench.Options) (*bench.Report, error) {
	if !a.errTerm {
		return bench.Run(ctx, o)
	}
	m := a.meter("measuring", func(n int64) string { return count(int(n), "turn") }, nil)
	defer m.end()
	o.Count = func(n int) { m.done.Add(int64(n)) }
	o.Progress = func(what string) { a.note("troupe: measuring %s", what) }
	return bench.Run(ctx, o)
}

// benchText is a report for people.
func benchText(w io.Writer, r *bench.Report, width int) error {
	head := fmt.Sprintf("%s: the answers come from a script, over real HTTP on the loopback interface\n%s, %s; writing and syncing 4 KiB takes %.2f ms here\n",
		r.Model, r.System, count(r.CPUs, "processor"), r.SyncMs)
	if _, err := io.WriteString(w, head); err != nil {
		return err
	}
	for _, part := range benchTables(r) {
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
		if err := benchTable(w, part, width); err != nil {
			return err
		}
	}
	return nil
}

// benchTable is a table, or where a terminal has no room for it a line for each figure.
func benchTable(w io.Writer, part [][]string, width int) error {
	var text bytes.Buffer
	if err := table(&text, part[0], part[1:]); err != nil {
		return err
	}
	wide := 0
	for l := range strings.Lines(text.String()) {
		wide = max(wide, utf8.RuneCountInString(l)-1)
	}
	if wide <= width {
		_, err := w.Write(text.Bytes())
		return err
	}
	for _, row := range part[1:] {
		for i, name := range part[0] {
			if _, err := fmt.Fprintf(w, "%-13s %s\n", name, row[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// benchTables are the parts that were measured, each with its heads first.
func benchTables(r *bench.Report) (out [][][]string) {
	num := func(format string, v float64) string {
		if v == 0 {
			return "-"
		}
		return fmt.Sprintf(format, v)
	}
	if a := r.Agents; a != nil {
		out = append(out, [][]string{
			{"AGENTS", "TURNS", "TURNS/S", "CPU MS/TURN", "P50 MS", "P99 MS", "KB/ACTIVE", "KB/IDLE", "WAKE MS", "MB ALL AWAY"},
			{
				fmt.Sprint(a.Agents), fmt.Sprint(a.Turns), num("%.0f", a.PerSecond), num("%.2f", a.CPUMs), num("%.1f", a.P50Ms), num("%.1f", a.P99Ms),
				num("%.0f", a.KBActive), num("%.0f", a.KBIdle), num("%.1f", a.WakeMs), num("%.1f", a.MBAway),
			},
		})
	}
	if f := r.Flatness; f != nil {
		rows := [][]string{{"AT TURN", "CPU MS", "TO TURN " + fmt.Sprint(f.Points[0].Turn), "MS"}}
		for _, p := range f.Points {
			ratio := 0.0
			if first := f.Points[0].CPUMs; first > 0 {
				ratio = p.CPUMs / first
			}
			rows = append(rows, []string{fmt.Sprint(p.Turn), num("%.2f", p.CPUMs), num("%.2f", ratio), num("%.1f", p.Ms)})
		}
		out = append(out, rows)
	}
	if v := r.Recovery; v != nil {
		out = append(out, [][]string{
			{"KILLED WITH", "TURNS DONE", "LOST", "RESUMED", "OPEN MS", "FIRST MS", "ALL MS", "AGENTS/S", "NEXT TURN MS"},
			{
				count(v.Agents, "agent"), fmt.Sprint(v.Turns), fmt.Sprint(v.Lost), fmt.Sprint(v.Resumed), num("%.0f", v.OpenMs), num("%.1f", v.FirstMs),
				num("%.0f", v.AllMs), num("%.0f", v.PerS), num("%.1f", v.NextMs),
			},
		})
	}
	return out
}
