package load

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// Beside is what many sessions at once came to.
type Beside struct {
	System     string  `json:"system"`
	Sessions   int     `json:"sessions"`
	Turns      int     `json:"turns"` // of all sessions
	PerSecond  float64 `json:"turns_per_s"`
	CPUPer1000 float64 `json:"cpu_s_per_1000"`
	P50        float64 `json:"p50_ms"` // of one turn
	P99        float64 `json:"p99_ms"`
	KBActive   float64 `json:"kb_per_active"` // peak of the process, above its start, per session
	KBIdle     float64 `json:"kb_per_idle"`   // heap and stacks some time after the last turn, see Options.Settle; 0: not measured
	AllocKB    float64 `json:"alloc_kb_per_turn"`
	Allocs     float64 `json:"allocs_per_turn"`
}

// beside plays all sessions at once, each in a goroutine, the opening included.
func beside(ctx context.Context, system string, o *Options, open Open) (*Beside, error) {
	debug.FreeOSMemory()
	rss := memory("VmRSS")
	took := make([]float64, o.Sessions*o.Turns)
	keep := make([]Turn, o.Sessions)
	errs := make([]error, o.Sessions)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, start := CPU(), time.Now()
	var wg sync.WaitGroup
	for i := range o.Sessions {
		wg.Go(func() { keep[i], errs[i] = session(ctx, i, took[i*o.Turns:(i+1)*o.Turns], open) })
	}
	wg.Wait()
	wall, used := time.Since(start).Seconds(), CPU()-cpu
	runtime.ReadMemStats(&after)
	peak := memory("VmHWM")
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	idle := 0.0
	if o.Settle > 0 {
		<-time.After(o.Settle)
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		idle = (live(&m) - live(&before)) / float64(o.Sessions)
	}
	slices.Sort(took)
	n := len(took)
	runtime.KeepAlive(keep)
	return &Beside{
		System: system, Sessions: o.Sessions, Turns: n, PerSecond: float64(n) / wall, CPUPer1000: used / float64(n) * 1000,
		P50: took[n/2], P99: took[n*99/100], KBActive: (peak - rss) / float64(o.Sessions), KBIdle: idle,
		AllocKB: float64(after.TotalAlloc-before.TotalAlloc) / 1024 / float64(n), Allocs: float64(after.Mallocs-before.Mallocs) / float64(n),
	}, nil
}

// live is what a process holds after a collection, in KiB: heap and stacks.
func live(m *runtime.MemStats) float64 { return float64(m.HeapAlloc+m.StackInuse) / 1024 }

// session plays the turns of one session and returns it, so that it stays in memory.
func session(ctx context.Context, i int, took []float64, open Open) (Turn, error) {
	turn, err := open(ctx, i)
	if err != nil {
		return nil, err
	}
	for n := range took {
		at := time.Now()
		if err := turn(ctx, n); err != nil {
			return nil, err
		}
		took[n] = float64(time.Since(at).Microseconds()) / 1000
	}
	return turn, nil
}
