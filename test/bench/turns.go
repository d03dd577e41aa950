package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/test/bench/load"
)

// play runs a system once, on a data directory of its own, and reads its line of JSON.
func (b *bench) play(ctx context.Context, system string, into any, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	data, err := os.MkdirTemp(b.dir, "data-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(data)
	args = append([]string{"-base", b.base, "-data", data}, args...)
	if b.profiles != "" && system == "turns" {
		args = append(args, "-prof", filepath.Join(b.profiles, strings.Join(args[4:], "")+".prof"))
	}
	out, err := output(b.pinned(ctx, 1, system, args...))
	if err != nil {
		return err
	}
	return json.Unmarshal(out, into)
}

// pick gathers one figure of all repetitions.
func pick[T any](all []T, figure func(T) float64) []float64 {
	out := make([]float64, len(all))
	for i, r := range all {
		out[i] = figure(r)
	}
	return out
}

// sessions compares many conversations at once.
func (b *bench) sessions(ctx context.Context, sizes []string) error {
	fmt.Println("| sessions x turns | system | turns/s | ratio | CPU ms/turn | ratio | p50 ms | p99 ms | KB/active session | KB/idle session | allocations/turn |")
	fmt.Println("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
	results := make([][2][]load.Beside, len(sizes))
	for rep := range b.reps {
		for i, size := range sizes {
			sessions, turns, ok := strings.Cut(size, "x")
			if !ok {
				return fmt.Errorf("size %q is not sessions x turns", size)
			}
			for j, system := range []string{"bare", "turns"} {
				args := []string{"-sessions", sessions, "-turns", turns}
				if rep == 0 && manySessions(sessions) {
					args = append(args, "-settle", "2500ms")
				}
				var r load.Beside
				if err := b.play(ctx, system, &r, args...); err != nil {
					return err
				}
				results[i][j] = append(results[i][j], r)
			}
		}
	}
	for i, size := range sizes {
		bare := results[i][0]
		rate := func(r load.Beside) float64 { return r.PerSecond }
		cpu := func(r load.Beside) float64 { return r.CPUPer1000 }
		for _, all := range results[i] {
			perSecond, used := median(pick(all, rate)), slices.Min(pick(all, cpu))
			fmt.Printf("| %s | %s | %.0f | %.2f | %.3f | %.2f | %.1f | %.1f | %s | %s | %.0f |\n", size, all[0].System,
				perSecond, perSecond/median(pick(bare, rate)), used, used/slices.Min(pick(bare, cpu)),
				median(pick(all, func(r load.Beside) float64 { return r.P50 })), median(pick(all, func(r load.Beside) float64 { return r.P99 })),
				perSession(all[0], median(pick(all, func(r load.Beside) float64 { return r.KBActive }))), perSession(all[0], all[0].KBIdle),
				median(pick(all, func(r load.Beside) float64 { return r.Allocs })))
		}
	}
	fmt.Println()
	return nil
}

// manySessions says whether there are enough for the process's own memory not to matter.
func manySessions(n string) bool { return len(n) > 3 }

func perSession(r load.Beside, kb float64) string {
	if !manySessions(fmt.Sprint(r.Sessions)) {
		return "-"
	}
	return fmt.Sprintf("%.0f", kb)
}

// long follows one conversation: the cost of its turns may grow with the bytes of the request only.
func (b *bench) long(ctx context.Context) error {
	fmt.Println("| one session | turn | CPU ms/turn | to turn 10 | KB/request | CPU ms per further MB sent |")
	fmt.Println("|---|---:|---:|---:|---:|---:|")
	results := [2][]load.Along{}
	for rep := range b.reps {
		for j, system := range []string{"bare", "turns"} {
			if system == "bare" && rep > 0 { // it is slow, and not what is in question
				continue
			}
			var r load.Along
			if err := b.play(ctx, system, &r, "-at", "10,100,1000", "-repeat", "1"); err != nil {
				return err
			}
			results[j] = append(results[j], r)
		}
	}
	for _, all := range results {
		var first, sent float64
		for p, pt := range all[0].Points {
			used := slices.Min(pick(all, func(r load.Along) float64 { return r.Points[p].CPU }))
			perMB := "-"
			if p == 0 {
				first, sent = used, pt.RequestKB
			} else {
				perMB = fmt.Sprintf("%.2f", (used-first)/(2*(pt.RequestKB-sent)/1024))
			}
			fmt.Printf("| %s | %d | %.3f | %.2f | %.1f | %s |\n", all[0].System, pt.Turn, used, used/first, pt.RequestKB, perMB)
		}
	}
	fmt.Printf("\nPosting bytes with net/http and nothing else costs %.2f CPU ms per MB here.\n\n",
		slices.Min(pick(results[1], func(r load.Along) float64 { return r.Sending })))
	return nil
}
