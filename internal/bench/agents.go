package bench

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/troupe-dev/troupe"
)

// Agents is what many conversations side by side came to.
type Agents struct {
	Agents    int     `json:"agents"`
	Turns     int     `json:"turns"` // of all
	PerSecond float64 `json:"turns_per_s"`
	CPUMs     float64 `json:"cpu_ms_per_turn"` // of this process; 0 where the system does not say
	P50Ms     float64 `json:"p50_ms"`          // of one turn
	P99Ms     float64 `json:"p99_ms"`

	KBActive float64 `json:"kb_per_active_agent"` // the most that the process had from the system, above its start, for each
	KBIdle   float64 `json:"kb_per_idle_agent"`   // heap and stacks that each gave back when it left memory after it had rested
	InMemory int     `json:"idle_in_memory"`      // agents that were there, when that was measured
	Stayed   int     `json:"still_in_memory"`     // of them, agents that had not left when they were waited for no longer; then nobody is woken
	MBAway   float64 `json:"mb_all_away"`         // heap and stacks of the process after all had left; 0: they had not
	WakeMs   float64 `json:"wake_ms"`             // median of what the first answer of one takes that had left; 0: they had not
}

const (
	// restFor is how long an agent of this part rests before it leaves memory; leaveWithin, and leaveEach for each of them, how long is waited for that.
	restFor, leaveWithin, leaveEach = time.Second, 5 * time.Second, 5 * time.Millisecond
	// wakes is how many are woken.
	wakes = 10
)

// agents plays all conversations at once, each in a session and a folder of its own. Opening them is part of it.
func (b *run) agents(ctx context.Context) (out *Agents, err error) {
	h, err := open(ctx, b.base, filepath.Join(b.Dir, "agents"), restFor)
	if err != nil {
		return nil, err
	}
	ctx, end := h.watched(ctx)
	defer func() { err = errors.Join(end(err), h.close(ctx)) }()
	if err := h.warm(ctx); err != nil {
		return nil, err
	}
	out = &Agents{Agents: b.Agents, Turns: b.Agents * b.Turns}
	took, sessions := make([]float64, out.Turns), make([]*troupe.Session, b.Agents)
	held()
	before := total()
	peak := watchMemory()
	cpu, began := processorTime(), time.Now()
	err = side(b.Agents, func(i int) error {
		s, err := h.session(ctx, i)
		for n := 0; n < b.Turns && err == nil; n++ {
			at := time.Now()
			err = turn(ctx, s, n)
			took[i*b.Turns+n] = ms(at)
			b.Count(1)
		}
		sessions[i] = s
		return err
	})
	wall, used, most := time.Since(began).Seconds(), processorTime()-cpu, peak()
	if err != nil {
		return nil, err
	}
	turns := float64(out.Turns)
	out.PerSecond, out.CPUMs = turns/wall, used.Seconds()*1000/turns
	out.P50Ms, out.P99Ms = quantile(took, 50), quantile(took, 99)
	out.KBActive = max(0, most-before) / float64(b.Agents)
	if err := h.memory(ctx, out); err != nil || out.Stayed > 0 {
		return out, err
	}
	return out, h.wake(ctx, out, sessions)
}

// warm plays a turn that nothing is measured of: the first one pays for tables and connections.
func (h *house) warm(ctx context.Context) error {
	s, err := h.session(ctx, -1)
	if err != nil {
		return err
	}
	return turn(ctx, s, 0)
}

// memory is what agents take that rest, and what is left when they have left.
func (h *house) memory(ctx context.Context, out *Agents) error {
	n, err := h.inMemory(ctx)
	if err != nil {
		return err
	}
	idle := held()
	out.InMemory = n
	tick := time.NewTicker(restFor / 10)
	defer tick.Stop()
	wait := leaveWithin + time.Duration(n)*leaveEach
	for began := time.Now(); n > 0 && time.Since(began) < wait; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if n, err = h.inMemory(ctx); err != nil {
			return err
		}
	}
	away := held()
	if out.Stayed = n; n == 0 {
		out.MBAway = away / 1024
	}
	if left := out.InMemory - n; left > 0 {
		out.KBIdle = max(0, idle-away) / float64(left)
	}
	return nil
}

// wake asks some that have left for what was said.
func (h *house) wake(ctx context.Context, out *Agents, sessions []*troupe.Session) error {
	var took []float64
	for _, s := range sessions[:min(wakes, len(sessions))] {
		at := time.Now()
		if _, err := s.History(ctx); err != nil {
			return err
		}
		took = append(took, ms(at))
	}
	out.WakeMs = quantile(took, 50)
	return nil
}

// held is what this process holds after a collection, in KiB: heap and stacks.
func held() float64 {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc+m.StackInuse) / 1024
}

// total is what the Go runtime has from the system, in KiB.
func total() float64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return float64(s[0].Value.Uint64()-s[1].Value.Uint64()) / 1024
}

// watchMemory looks at the memory again and again until the function that it returns is called, which gives the most that was seen.
func watchMemory() (peak func() float64) {
	stop, most := make(chan struct{}), make(chan float64)
	go func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for seen := total(); ; {
			select {
			case <-tick.C:
				seen = max(seen, total())
			case <-stop:
				most <- max(seen, total())
				return
			}
		}
	}()
	return func() float64 {
		close(stop)
		return <-most
	}
}
