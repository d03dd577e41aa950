package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/troupe-dev/troupe/test/bench/load"
)

// longTurns is how many turns the session has that is resumed with its snapshots and without.
const longTurns = 1000

// recovery measures how a store full of sessions comes back.
func (b *bench) recovery(ctx context.Context, sessions int) error {
	data, err := os.MkdirTemp(b.dir, "recovery-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(data)
	var filled map[string]int
	if err := b.recover(ctx, &filled, data, "fill", "-sessions", strconv.Itoa(sessions)); err != nil {
		return err
	}
	reps := min(b.reps, 3)
	all := make([]load.Recovered, reps)
	for i := range all {
		if err := b.recover(ctx, &all[i], data, "resume"); err != nil {
			return err
		}
	}
	mid := func(figure func(load.Recovered) float64) float64 { return median(pick(all, figure)) }
	read, records := mid(func(r load.Recovered) float64 { return r.ReadMs }), float64(all[0].Records)
	allMs, cpu := mid(func(r load.Recovered) float64 { return r.AllMs }), slices.Min(pick(all, func(r load.Recovered) float64 { return r.AllCPU }))
	fmt.Printf("| %d sessions, %d records | ms | |\n|---|---:|---|\n", all[0].Sessions, all[0].Read)
	fmt.Printf("| open the store | %.0f | |\n", mid(func(r load.Recovered) float64 { return r.OpenMs }))
	fmt.Printf("| start the runtime | %.1f | |\n", mid(func(r load.Recovered) float64 { return r.StartMs }))
	fmt.Printf("| resume one session | %.1f | |\n", mid(func(r load.Recovered) float64 { return r.OneMs }))
	fmt.Printf("| resume all of them | %.0f | %.0f sessions/s, %.0f records/s folded, %.1f CPU µs/record |\n",
		allMs, float64(all[0].Sessions)/allMs*1000, records/allMs*1000, cpu*1000/records)
	fmt.Printf("| read every record, and nothing else | %.0f | %.0f records/s: resuming takes %.1f x |\n\n", read, float64(all[0].Read)/read*1000, allMs/read)
	return b.snapshots(ctx, data, reps)
}

// snapshots measures what those of one long session cost and save.
func (b *bench) snapshots(ctx context.Context, data string, reps int) error {
	all := make([]load.Snapshots, reps)
	for i := range all {
		dir := filepath.Join(data, "long-"+strconv.Itoa(i))
		if err := b.recover(ctx, &all[i], dir, "long", "-turns", strconv.Itoa(longTurns)); err != nil {
			return err
		}
	}
	mid := func(figure func(load.Snapshots) float64) float64 { return median(pick(all, figure)) }
	s := all[0]
	with, whole := mid(func(r load.Snapshots) float64 { return r.SnapMs }), mid(func(r load.Snapshots) float64 { return r.WholeMs })
	fmt.Printf("| one session of %d turns | ms | |\n|---|---:|---|\n", s.Turns)
	fmt.Printf("| resume it from its first record | %.1f | %d records |\n", whole, s.WholeRecords)
	fmt.Printf("| resume it from its newest snapshot | %.1f | %d records behind it: %.2f x |\n", with, s.SnapRecords, with/whole)
	fmt.Printf("| write its %d snapshots (%.0f KB) | %.1f | %.2f x the time of all turns, beside them |\n\n",
		s.Written, s.WrittenKB, mid(func(r load.Snapshots) float64 { return r.WriteMs }), mid(func(r load.Snapshots) float64 { return r.WriteMs / r.PlayMs }))
	return nil
}

// recover runs one step in a process of its own and reads its line of JSON.
func (b *bench) recover(ctx context.Context, into any, data, do string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	out, err := output(b.pinned(ctx, 1, "recover", append([]string{"-data", data, "-do", do}, args...)...))
	if err != nil {
		return err
	}
	return json.Unmarshal(out, into)
}

// durability compares turns that are synced to the disk with turns that are kept in memory. The two take turns.
func (b *bench) durability(ctx context.Context) error {
	sizes := []string{"1x60", "64x10", "1000x2"}
	kinds := []struct {
		name string
		args []string
	}{{"memory", []string{"-data", ""}}, {"synced", nil}}
	results := make([][2][]load.Beside, len(sizes))
	for range min(b.reps, 3) {
		for i, size := range sizes {
			sessions, turns, _ := strings.Cut(size, "x")
			for j, k := range kinds {
				var r load.Beside
				if err := b.play(ctx, "turns", &r, append([]string{"-sessions", sessions, "-turns", turns}, k.args...)...); err != nil {
					return err
				}
				results[i][j] = append(results[i][j], r)
			}
		}
	}
	fmt.Println("| sessions x turns | store | turns/s | ratio | CPU ms/turn | ratio | p50 ms | p99 ms |")
	fmt.Println("|---|---|---:|---:|---:|---:|---:|---:|")
	for i, size := range sizes {
		memory := results[i][0]
		rate := func(r load.Beside) float64 { return r.PerSecond }
		cpu := func(r load.Beside) float64 { return r.CPUPer1000 }
		for j, all := range results[i] {
			perSecond, used := median(pick(all, rate)), slices.Min(pick(all, cpu))
			fmt.Printf("| %s | %s | %.0f | %.2f | %.3f | %.2f | %.1f | %.1f |\n", size, kinds[j].name,
				perSecond, perSecond/median(pick(memory, rate)), used, used/slices.Min(pick(memory, cpu)),
				median(pick(all, func(r load.Beside) float64 { return r.P50 })), median(pick(all, func(r load.Beside) float64 { return r.P99 })))
		}
	}
	fmt.Println()
	return nil
}
