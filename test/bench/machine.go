package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// command is a process that ends with the context.
func (b *bench) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// pinned is command on one processor, where that can be had.
func (b *bench) pinned(ctx context.Context, cpu int, name string, args ...string) *exec.Cmd {
	path := filepath.Join(b.dir, name)
	if taskset, ok := pins(); ok {
		return b.command(ctx, taskset, append([]string{"-c", fmt.Sprint(cpu), path}, args...)...)
	}
	return b.command(ctx, path, args...)
}

func pins() (string, bool) {
	taskset, err := exec.LookPath("taskset")
	return taskset, err == nil && runtime.NumCPU() > 1
}

func output(cmd *exec.Cmd) ([]byte, error) {
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s%s", strings.Join(cmd.Args, " "), err, said.Bytes(), out)
	}
	return out, nil
}

// serve starts the model server, which says where it listens.
func (b *bench) serve(ctx context.Context) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	cmd := b.pinned(ctx, 0, "mock")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("start the model server: %w", err)
	}
	stop = func() {
		cancel()
		_ = cmd.Wait() // it was killed
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		stop()
		return nil, fmt.Errorf("start the model server: %w", err)
	}
	b.base = strings.TrimSpace(line)
	return stop, nil
}

// machine says in one paragraph what the figures were measured on.
func (b *bench) machine(ctx context.Context) (string, error) {
	synced, err := b.syncTime()
	if err != nil {
		return "", err
	}
	pin := "nothing pinned"
	if _, ok := pins(); ok {
		pin = "model server on processor 0, system under test on 1"
	}
	load := "unknown"
	if l, err := os.ReadFile("/proc/loadavg"); err == nil {
		load, _, _ = strings.Cut(string(l), " ")
	}
	commit := "unknown"
	if out, err := output(b.command(ctx, "git", "rev-parse", "--short", "HEAD")); err == nil {
		commit = strings.TrimSpace(string(out))
	}
	return fmt.Sprintf("Commit %s, %s, %s/%s, %d processors (%s), load %s at the start, %s; "+
		"writing and syncing 4 KiB takes %.2f ms here (median). %d repetitions: median, for CPU the minimum.\n",
		commit, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), processor(), load, pin, synced, b.reps), nil
}

func processor() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(b)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// syncTime is how long a small synced write takes where the data lies, in milliseconds.
func (b *bench) syncTime() (ms float64, err error) {
	f, err := os.Create(filepath.Join(b.dir, "sync"))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	took := make([]float64, 51)
	page := make([]byte, 4<<10)
	for i := range took {
		start := time.Now()
		if _, err := f.Write(page); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		took[i] = time.Since(start).Seconds() * 1000
	}
	return median(took), nil
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if len(s)%2 == 1 {
		return s[len(s)/2]
	}
	return (s[len(s)/2-1] + s[len(s)/2]) / 2
}
