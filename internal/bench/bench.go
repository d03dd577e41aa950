// Package bench measures troupe on the machine of whoever asks, for `troupe bench`: many agents side by side, one
// conversation that grows, and a kill. The answers come from a script over real HTTP on the loopback interface, served by
// a process of its own, so that no language model runs and what is measured is the runtime's.
package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"
)

// Part is one thing that is measured.
type Part string

// The parts of a run.
const (
	PartAgents   Part = "agents"   // many conversations side by side, and the memory that they take
	PartFlatness Part = "flatness" // what a turn costs as its conversation grows
	PartRecovery Part = "recovery" // a process is killed while its agents work; another goes on
)

// Parts are all parts, in the order in which they run.
func Parts() []Part { return []Part{PartAgents, PartFlatness, PartRecovery} }

// Bounds of what may be asked for.
const (
	MaxAgents = 100_000
	MaxTurns  = 10_000 // of one conversation
	MinLong   = window // turns of the one that grows: so many are looked at together
)

// Options say what is measured. The zero value of a field is its default.
type Options struct {
	Dir    string // there, and empty; whoever made it removes it
	Agents int    // side by side; default 50
	Turns  int    // of each agent; default 6
	Long   int    // turns of the conversation that grows, from MinLong; default 200
	Parts  []Part // default: all
	// Progress is told what begins, and Count of turns that have ended, also at the same time; nil: nobody is.
	Progress func(what string)
	Count    func(turns int)
}

func (o Options) withDefaults() Options {
	set := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	set(&o.Agents, 50)
	set(&o.Turns, 6)
	set(&o.Long, 200)
	if len(o.Parts) == 0 {
		o.Parts = Parts()
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Count == nil {
		o.Count = func(int) {}
	}
	return o
}

// Report is what was measured. Parts that were not asked for are nil.
type Report struct {
	Model    string    `json:"model"` // always that none is running
	System   string    `json:"system"`
	CPUs     int       `json:"cpus"`
	SyncMs   float64   `json:"sync_ms"` // median of writing 4 KiB to the disk of Dir and syncing it
	Agents   *Agents   `json:"agents,omitempty"`
	Flatness *Flatness `json:"flatness,omitempty"`
	Recovery *Recovery `json:"recovery,omitempty"`
}

// NoModel is what every report says of the model.
const NoModel = "no language model is running"

// Run measures. What it started has ended when it returns.
func Run(ctx context.Context, o Options) (*Report, error) {
	o = o.withDefaults()
	r := &Report{Model: NoModel, System: runtime.GOOS + "/" + runtime.GOARCH + " " + runtime.Version(), CPUs: runtime.GOMAXPROCS(0)}
	var err error
	if r.SyncMs, err = syncing(o.Dir); err != nil {
		return nil, err
	}
	m, err := startModel(ctx)
	if err != nil {
		return nil, err
	}
	defer m.end()
	b := &run{Options: o, base: m.base}
	for _, p := range Parts() {
		if !slices.Contains(o.Parts, p) {
			continue
		}
		o.Progress(string(p))
		switch p {
		case PartAgents:
			r.Agents, err = b.agents(ctx)
		case PartFlatness:
			r.Flatness, err = b.flatness(ctx)
		case PartRecovery:
			r.Recovery, err = b.recovery(ctx)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("measure %s: %w", p, err)
		}
	}
	return r, nil
}

// run is one run.
type run struct {
	Options
	base string // URL of the model
}

// syncing times small synced writes: what every turn waits for.
func syncing(dir string) (float64, error) {
	f, err := os.CreateTemp(dir, "sync-")
	if err != nil {
		return 0, fmt.Errorf("time the disk: %w", err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	block, took := make([]byte, 4096), make([]float64, 21)
	for i := range took {
		began := time.Now()
		if _, err = f.Write(block); err == nil {
			err = f.Sync()
		}
		if err != nil {
			return 0, fmt.Errorf("time the disk: %w", err)
		}
		took[i] = ms(began)
	}
	return quantile(took, 50), nil
}

// folder makes a folder with the note that each turn reads.
func folder(parent, name string) (string, error) {
	dir := filepath.Join(parent, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make a folder for an agent: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, note), []byte("The work goes on.\n"), 0o600); err != nil {
		return "", fmt.Errorf("make a folder for an agent: %w", err)
	}
	return dir, nil
}

func ms(since time.Time) float64 { return time.Since(since).Seconds() * 1000 }

// quantile sorts what it is given. It is 0 of nothing.
func quantile(v []float64, percent int) float64 {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return v[min(len(v)-1, len(v)*percent/100)]
}
