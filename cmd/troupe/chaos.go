package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/internal/chaos"
)

// chaosFlags are the flags of `troupe chaos`.
type chaosFlags struct {
	turns, sessions, parallel int
	killAt                    string
	seed                      uint64
	keep                      bool
}

// maxTurns bounds a run: its history is held in memory to be checked.
const maxTurns = 100_000

func newChaos(a *app) *cobra.Command {
	f := &chaosFlags{}
	cmd := &cobra.Command{
		Use:   "chaos",
		Short: "Kill a runtime while it works, and check what comes back",
		Long: `Kill a runtime while it works, and check what comes back.

Scripted prompts run in real processes, with tools of every effect class, parallel calls and a model that
refuses, stalls and breaks off. The processes are killed and started again; then journals, effects,
requests and events are held to thirteen rules. No language model is running, and nothing that you keep
is touched.

The last line is: turns= kills= lost= duplicated= in_doubt= violations=
It ends with 0 when no rule was broken, with 1 when one was; then the folder is kept and named.

  troupe chaos --turns 200 --kill-at every
  troupe chaos --seed 42                     # the same prompts, faults and kill points again`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("seed") {
				f.seed = uint64(rand.Uint32()) //nolint:gosec // any number will do
			}
			return a.chaos(cmd.Context(), f)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&f.turns, "turns", 50, "`N` prompts over all sessions")
	flags.StringVar(&f.killAt, "kill-at", string(chaos.Random), "`WHEN` to kill: random, every (after every append of every turn), never")
	flags.Uint64Var(&f.seed, "seed", 0, "`N` that repeats a run (default: a new one)")
	flags.IntVar(&f.sessions, "sessions", 2, "`N` sessions in each process")
	flags.IntVar(&f.parallel, "parallel", 4, "`N` processes side by side, each with a data directory of its own")
	flags.BoolVar(&f.keep, "keep", false, "keep the folder of a run that went well, too")
	return formats(cmd, "text", "json", "yaml")
}

// checked refuses what no run can be made of.
func (f *chaosFlags) checked() error {
	switch m := chaos.Mode(f.killAt); {
	case m != chaos.Random && m != chaos.Every && m != chaos.Never:
		e := usage("troupe chaos: --kill-at %s is no moment to kill at", f.killAt)
		e.hint = "one of random, every, never"
		return e
	case f.turns < 1 || f.turns > maxTurns:
		return usage("troupe chaos: --turns %d is not from 1 to %d", f.turns, maxTurns)
	case f.sessions < 1 || f.sessions > 64:
		return usage("troupe chaos: --sessions %d is not from 1 to 64", f.sessions)
	case f.parallel < 1 || f.parallel > 64:
		return usage("troupe chaos: --parallel %d is not from 1 to 64", f.parallel)
	}
	return nil
}

// chaosJSON is a run as data.
type chaosJSON struct {
	*chaos.Report
	KillAt string `json:"kill_at"`
	Data   string `json:"data,omitempty"` // the folder, when it was kept
	Repeat string `json:"repeat"`
}

// chaos makes a run and says what came of it.
func (a *app) chaos(ctx context.Context, f *chaosFlags) error {
	if err := f.checked(); err != nil {
		return err
	}
	dir, err := chaos.MakeDir(a.flags.data)
	switch {
	case errors.Is(err, chaos.ErrUsed):
		return &exitError{code: exitInput, what: "--data " + err.Error(), hint: "name another one, or leave --data out for a temporary one", err: err}
	case err != nil:
		return &exitError{code: exitIO, what: err.Error(), err: err}
	}
	repeat := fmt.Sprintf("troupe chaos --seed %d --turns %d --kill-at %s --sessions %d --parallel %d", f.seed, f.turns, f.killAt, f.sessions, f.parallel)
	if a.flags.format == "text" {
		if err := a.say(fmt.Sprintf("seed=%d kill-at=%s no language model is running", f.seed, f.killAt)); err != nil {
			return err
		}
	}
	p := &chaosProgress{a: a, of: f.turns, began: time.Now()}
	r, err := chaos.Run(ctx, chaos.Options{
		Dir: dir, Turns: f.turns, Sessions: f.sessions, Parallel: f.parallel, Mode: chaos.Mode(f.killAt), Seed: f.seed, Progress: p.show,
	})
	p.end()
	if err != nil && ctx.Err() != nil && a.flags.data == "" && !f.keep {
		return errors.Join(err, os.RemoveAll(dir)) // an interrupted run shows nothing
	}
	if err != nil {
		a.note("troupe: what was left of the run is in %s; repeat it with: %s", dir, repeat)
		return err
	}
	kept := f.keep || r.Violations > 0
	if !kept {
		if err := os.RemoveAll(dir); err != nil {
			a.note("troupe: warning: %v", err)
		}
	}
	return a.chaosResult(r, f, dir, repeat, kept)
}

func (a *app) chaosResult(r *chaos.Report, f *chaosFlags, dir, repeat string, kept bool) error {
	j := chaosJSON{Report: r, KillAt: f.killAt, Repeat: repeat}
	if kept {
		j.Data = dir
	}
	err := a.emit(j, func(w io.Writer) error {
		var b strings.Builder
		for _, v := range r.Findings {
			b.WriteString(oneLine(v.String(), 2000) + "\n")
		}
		b.WriteString(r.Line() + "\n")
		_, err := io.WriteString(w, b.String())
		return err
	})
	switch {
	case err != nil:
		return err
	case r.Violations > 0:
		return &exitError{code: exitFailed, what: fmt.Sprintf("rules were broken: %d times; what was left is in %s", r.Violations, dir), hint: "repeat it with: " + repeat}
	case kept:
		a.note("troupe: the folder of the run is %s", dir)
	}
	return nil
}

// chaosProgress shows how far a run is, on a terminal and when it takes a while.
type chaosProgress struct {
	a     *app
	of    int
	began time.Time
	shown time.Time
}

// show is called under a lock of the run's.
func (p *chaosProgress) show(turns, kills int) {
	now := time.Now()
	took := now.Sub(p.began)
	if !p.a.errTerm || p.a.flags.quiet || took < 2*time.Second || now.Sub(p.shown) < 200*time.Millisecond {
		return
	}
	p.shown = now
	_, _ = fmt.Fprintf(p.a.err, "\r%d of %d turns, %d kills, %.1f turns/s ", turns, p.of, kills, float64(turns)/took.Seconds()) // nobody is left to be told
}

func (p *chaosProgress) end() {
	if !p.shown.IsZero() {
		_, _ = fmt.Fprintln(p.a.err) // nobody is left to be told
	}
}
