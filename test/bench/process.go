package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// appends runs the store's own comparison with one transaction for each append.
func (b *bench) appends(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	cmd := b.command(ctx, filepath.Join(b.dir, "store"), "-test.run", "^$", "-test.bench", "^BenchmarkAppend$", "-test.benchtime", "400ms",
		"-test.count", fmt.Sprint(min(b.reps, 3)))
	cmd.Dir = b.dir
	out, err := output(cmd)
	if err != nil {
		return err
	}
	all := map[string]map[string][]float64{}
	var order []string
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) < 4 || !strings.HasPrefix(f[0], "BenchmarkAppend/") {
			continue
		}
		_, size, _ := strings.Cut(f[0], "appenders=")
		size, _, _ = strings.Cut(size, "-")
		if all[size] == nil {
			all[size], order = map[string][]float64{}, append(order, size)
		}
		for i := 2; i+1 < len(f); i += 2 {
			var v float64
			if _, err := fmt.Sscan(f[i], &v); err != nil {
				return fmt.Errorf("read %q: %w", line, err)
			}
			all[size][f[i+1]] = append(all[size][f[i+1]], v)
		}
	}
	fmt.Println("| appenders | appends/s | one transaction each/s | ratio | target |")
	fmt.Println("|---:|---:|---:|---:|---:|")
	targets := map[string]string{"1": "0.9", "64": "6", "1024": "20"}
	for _, size := range order {
		r := all[size]
		fmt.Printf("| %s | %.0f | %.0f | %.2f | %s |\n", size, median(r["appends/s"]), median(r["each/s"]), median(r["x/each"]), targets[size])
	}
	fmt.Println()
	return nil
}

// process times whole processes: what somebody waits for who types a command.
func (b *bench) process(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	home, err := os.MkdirTemp(b.dir, "home-")
	if err != nil {
		return err
	}
	troupe := filepath.Join(b.dir, "troupe")
	n := 0
	kinds := []struct {
		name string
		args func() []string
	}{
		{"`troupe version`", func() []string { return []string{"version"} }},
		{"`troupe run`, new data directory", func() []string {
			n++
			return []string{"run", "-q", "--data", filepath.Join(home, fmt.Sprint("new-", n)), "-m", "scripted/echo", "hello"}
		}},
		{"`troupe run`, used data directory", func() []string {
			return []string{"run", "-q", "--data", filepath.Join(home, "used"), "-m", "scripted/echo", "hello"}
		}},
	}
	took := make([][]float64, len(kinds))
	for range 4*b.reps + 1 {
		for i, k := range kinds {
			cmd := b.command(ctx, troupe, k.args()...)
			cmd.Dir, cmd.Env = home, append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_DATA_HOME="+home)
			start := time.Now()
			if _, err := output(cmd); err != nil {
				return err
			}
			took[i] = append(took[i], time.Since(start).Seconds()*1000)
		}
	}
	info, err := os.Stat(troupe)
	if err != nil {
		return err
	}
	fmt.Println("| process | wall ms (median) | to `troupe version` |")
	fmt.Println("|---|---:|---:|")
	for i, k := range kinds {
		fmt.Printf("| %s | %.1f | %.1f |\n", k.name, median(took[i]), median(took[i])/median(took[0]))
	}
	fmt.Printf("\nThe binary has %.1f MB.\n", float64(info.Size())/1e6)
	return nil
}
