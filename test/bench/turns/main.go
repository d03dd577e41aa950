// Command turns measures the runtime with many sessions at once: turns per second, CPU and memory per
// turn, on a model server that the caller provides (OpenAI Chat Completions, streaming; any tool
// call must be read_file of note.txt). It prints one JSON line.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/model/openai"
)

type result struct {
	System     string  `json:"sys"`
	Turns      int     `json:"turns"`
	Wall       float64 `json:"wall_s"`
	PerSecond  float64 `json:"tps"`
	CPUPer1000 float64 `json:"cpu_s_per_1000"`
	P50        float64 `json:"p50_ms"`
	P99        float64 `json:"p99_ms"`
	AllocKB    float64 `json:"alloc_kb_per_turn"`
	Allocs     float64 `json:"allocs_per_turn"`
	KBActive   float64 `json:"kb_per_active"`
	KBIdle     float64 `json:"kb_per_idle"`
	Errors     int64   `json:"errs"`
	Err        string  `json:"err,omitempty"`
}

func main() {
	sessions := flag.Int("sessions", 100, "sessions, all at once")
	turns := flag.Int("turns", 4, "turns of each session")
	data := flag.String("data", "", "data directory; empty keeps everything in memory")
	base := flag.String("base", "http://127.0.0.1:18080/v1", "model server")
	prof := flag.String("prof", "", "write a CPU profile here")
	flag.Parse()
	r, err := measure(*sessions, *turns, *data, *base, *prof)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		os.Exit(1)
	}
}

func measure(sessions, turns int, data, base, prof string) (*result, error) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "bench-ws")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	m, err := openai.New(openai.Options{BaseURL: base, APIKey: openai.Key("sk-x")})
	if err != nil {
		return nil, err
	}
	rt, err := troupe.New(ctx, troupe.Options{
		Model: m, DataDir: data,
		// The reference loops offer one tool, and so does this agent.
		Agents: []troupe.Agent{{Name: "default", System: "You are a helpful agent. Use the tools when needed and answer briefly.", Tools: []string{"read_file"}}},
	})
	if err != nil {
		return nil, err
	}
	defer rt.Close(ctx)
	for i := -1; i < sessions; i++ {
		d := filepath.Join(dir, strconv.Itoa(i))
		if err := os.Mkdir(d, 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(d, "note.txt"), []byte("This is a short note about the work. All is well.\n"), 0o600); err != nil {
			return nil, err
		}
	}
	open := func(i int) (*troupe.Session, error) {
		d := filepath.Join(dir, strconv.Itoa(i))
		return rt.Session(ctx, troupe.SessionOptions{Dir: d, Trust: troupe.Full, Model: "mock-1"})
	}
	w, err := open(-1)
	if err != nil {
		return nil, err
	}
	if _, err := w.Run(ctx, "warm up"); err != nil {
		return nil, err
	}
	return drive(ctx, sessions, turns, prof, open)
}

func drive(ctx context.Context, sessions, turns int, prof string, open func(int) (*troupe.Session, error)) (*result, error) {
	if prof != "" {
		f, err := os.Create(prof)
		if err != nil {
			return nil, err
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return nil, err
		}
		defer pprof.StopCPUProfile()
	}
	debug.FreeOSMemory()
	rss0 := memory("VmRSS")
	lat := make([]float64, sessions*turns)
	keep := make([]*troupe.Session, sessions)
	var errs atomic.Int64
	var first atomic.Value
	fail := func(err error) {
		errs.Add(1)
		first.CompareAndSwap(nil, err.Error())
	}
	var ms0, ms1 runtime.MemStats
	runtime.ReadMemStats(&ms0)
	cpu0, start := cpu(), time.Now()
	var wg sync.WaitGroup
	for i := range sessions {
		wg.Go(func() {
			s, err := open(i)
			if err != nil {
				fail(err)
				return
			}
			keep[i] = s
			for t := range turns {
				at := time.Now()
				res, err := s.Run(ctx, "Turn "+strconv.Itoa(t)+": please read note.txt and tell me what it says.")
				if err == nil && res.Outcome != "done" {
					err = fmt.Errorf("%s: %s", res.Outcome, res.Reason)
				}
				if err != nil {
					fail(err)
				}
				lat[i*turns+t] = float64(time.Since(at).Microseconds()) / 1000
			}
		})
	}
	wg.Wait()
	wall, used := time.Since(start).Seconds(), cpu()-cpu0
	runtime.ReadMemStats(&ms1)
	peak := memory("VmHWM")
	debug.FreeOSMemory()
	idle := memory("VmRSS")
	sort.Float64s(lat)
	n := len(lat)
	r := &result{
		System: "troupe", Turns: n, Wall: wall, PerSecond: float64(n) / wall, CPUPer1000: used / float64(n) * 1000, P50: lat[n/2], P99: lat[n*99/100],
		AllocKB: float64(ms1.TotalAlloc-ms0.TotalAlloc) / 1024 / float64(n), Allocs: float64(ms1.Mallocs-ms0.Mallocs) / float64(n),
		KBActive: (peak - rss0) / float64(sessions), KBIdle: (idle - rss0) / float64(sessions), Errors: errs.Load(),
	}
	if e, ok := first.Load().(string); ok {
		r.Err = e
	}
	runtime.KeepAlive(keep)
	return r, nil
}

// cpu is the processor time of this process in seconds.
func cpu() float64 {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		return 0
	}
	return float64(ru.Utime.Sec+ru.Stime.Sec) + float64(ru.Utime.Usec+ru.Stime.Usec)/1e6
}

// memory is a figure of /proc/self/status in KiB.
func memory(key string) float64 {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for _, l := range strings.Split(string(b), "\n") {
		if f := strings.Fields(l); len(f) > 1 && f[0] == key+":" {
			v, err := strconv.ParseFloat(f[1], 64)
			if err != nil {
				return 0
			}
			return v
		}
	}
	return 0
}
