package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

// Options say what a run does. Dir must be there and empty.
type Options struct {
	Dir      string
	Turns    int // over all sessions; default 50
	Sessions int // in each process; default 2
	Parallel int // processes side by side, each with a data directory of its own; default 4
	Mode     Mode
	Seed     uint64

	// InProcess runs the lives in this process on memory stores. It is quick, and shows what is left of
	// goroutines and files; a kill is a store that is cut off.
	InProcess bool
	// Patience is how long a life may neither end nor answer a client; default 3 min.
	Patience time.Duration
	// Progress is called now and then with the turns and kills so far; nil: nobody is told.
	Progress func(turns, kills int)
}

func (o Options) withDefaults() Options {
	set := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	set(&o.Turns, 50)
	set(&o.Sessions, 2)
	set(&o.Parallel, 4)
	o.Parallel = min(o.Parallel, o.Turns)
	if o.Mode == "" {
		o.Mode = Random
	}
	if o.Patience <= 0 {
		o.Patience = 3 * time.Minute
	}
	return o
}

// Report is what a run came to.
type Report struct {
	Seed       uint64      `json:"seed"`
	Turns      int         `json:"turns"` // that came to their end
	Kills      int         `json:"kills"`
	Lost       int         `json:"lost"`
	Duplicated int         `json:"duplicated"`
	Approvals  int         `json:"approvals"`  // calls that a person was asked about, and whose answer was taken
	InDoubt    int         `json:"in_doubt"`   // calls whose outcome is unknown, and which say so
	Violations int         `json:"violations"` // of all rules; lost and duplicated are among them
	Findings   []Violation `json:"findings"`
}

// Line is the last line of a run.
func (r *Report) Line() string {
	return fmt.Sprintf("turns=%d kills=%d lost=%d duplicated=%d in_doubt=%d violations=%d",
		r.Turns, r.Kills, r.Lost, r.Duplicated, r.InDoubt, r.Violations)
}

// Run makes a run and checks it. An error means that it could not be made; what it found wrong is in
// the report. Folders and logs stay in Dir.
func Run(ctx context.Context, o Options) (*Report, error) {
	o = o.withDefaults()
	before := count()
	lanes, stop, err := prepare(ctx, o)
	if err != nil {
		return nil, err
	}
	errs := make([]error, len(lanes))
	var running sync.WaitGroup
	for i, l := range lanes {
		running.Go(func() { errs[i] = l.run(ctx) })
	}
	running.Wait()
	if err := stop(); err != nil {
		return nil, err
	}
	r := &Report{Seed: o.Seed, Findings: []Violation{}}
	for i, l := range lanes {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		if err := r.add(ctx, l, errs[i]); err != nil {
			return nil, err
		}
	}
	if o.InProcess {
		r.note(Check(&History{Before: before, After: settled(ctx, before)}))
	}
	return r, nil
}

// prepare deals the turns to lanes. stop ends the model, after the lanes.
func prepare(ctx context.Context, o Options) (lanes []*lane, stop func() error, err error) {
	dealt := make([][]turn, o.Parallel)
	var all []turn
	for n := 1; n <= o.Turns; n++ {
		t := newTurn(o.Seed, n, o.Mode).inLane(n % o.Parallel)
		all = append(all, t)
		dealt[n%o.Parallel] = append(dealt[n%o.Parallel], t)
	}
	m, err := newEndpoint(ctx, all)
	if err != nil {
		return nil, nil, err
	}
	var mu sync.Mutex
	done := 0
	turned := func() {
		mu.Lock()
		defer mu.Unlock()
		done++
		if o.Progress != nil {
			o.Progress(done, kills(lanes))
		}
	}
	of := make(map[int]*lane)
	for i := range o.Parallel {
		var h host = processHost{}
		if o.InProcess {
			h = &localHost{}
		}
		l, err := newLane(i, o, h, m, dealt[i], turned)
		if err != nil {
			return nil, nil, errors.Join(err, m.close())
		}
		for _, t := range dealt[i] {
			of[t.n] = l
		}
		lanes = append(lanes, l)
	}
	m.kill = func(n int) { of[n].kill() }
	return lanes, m.close, nil
}

func kills(lanes []*lane) int {
	n := 0
	for _, l := range lanes {
		l.mu.Lock()
		n += l.kills
		l.mu.Unlock()
	}
	return n
}

// add checks one lane. A lane that did not come to its end has broken R1: what was acknowledged did not
// complete.
func (r *Report) add(ctx context.Context, l *lane, failed error) error {
	h, err := l.history(ctx, failed == nil)
	if err != nil {
		return err
	}
	r.Kills += l.kills
	r.Turns += l.done
	for _, entries := range h.Streams {
		for _, e := range entries {
			what, err := decode(e.Stream, e.Record)
			if f, ok := what.(*messages.ToolFinished); ok && err == nil && f.GetStatus() == messages.ToolFinished_INTERRUPTED_UNKNOWN {
				r.InDoubt++
			}
		}
	}
	answered := make(map[string]bool)
	for _, a := range h.Answers {
		if a.Told == Acknowledged || a.Told == messages.CodeResolved {
			answered[a.Approval] = true
		}
	}
	r.Approvals += len(answered)
	if failed != nil {
		r.note([]Violation{{Rule: "R1", Kind: Lost, Text: failed.Error()}})
	}
	r.note(Check(h))
	return nil
}

func (r *Report) note(found []Violation) {
	for _, v := range found {
		r.Violations++
		switch v.Kind {
		case Lost:
			r.Lost++
		case Duplicated:
			r.Duplicated++
		case Broken:
		}
	}
	r.Findings = append(r.Findings, found...)
}

// ErrUsed says that a folder for a run holds something already.
var ErrUsed = errors.New("the folder is used: a run needs one that is empty or does not exist")

// MakeDir makes the folder of a run, or takes an empty one; "" is a new one for temporary files. Errors:
// ErrUsed.
func MakeDir(dir string) (string, error) {
	if dir == "" {
		made, err := os.MkdirTemp("", "troupe-chaos-")
		if err != nil {
			return "", fmt.Errorf("make a folder for the run: %w", err)
		}
		return made, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the folder of the run: %w", err)
	}
	in, err := os.ReadDir(dir)
	switch {
	case err != nil:
		return "", fmt.Errorf("look into the folder of the run: %w", err)
	case len(in) > 0:
		return "", fmt.Errorf("%s: %w", dir, ErrUsed)
	}
	return dir, nil
}
