// Command bench measures troupe beside the loop that people write themselves, and prints tables in
// Markdown. The two take turns, each in a process of its own; the model server has processor 0 and
// the system under test processor 1, where the machine lets processes be pinned. Rates are medians,
// processor times minima: what else runs on a machine only ever adds to them. Compare ratios; the
// figures themselves are the machine's.
//
// Run it with `make bench`, in the root of the repository.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// most is how long one process under test may take.
const most = 2 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	b := &bench{}
	flag.IntVar(&b.reps, "reps", 5, "repetitions of each measurement")
	only := flag.String("only", "sessions,long,appends,process,durability,recovery,api", "what to measure")
	sessions := flag.String("sessions", "1x100,100x10,1000x4", "sessions at once x turns of each")
	flag.IntVar(&b.stored, "stored", 10_000, "sessions in the store that recovery is measured on")
	flag.StringVar(&b.profiles, "profiles", "", "directory for CPU profiles of troupe")
	flag.Parse()
	if err := b.run(ctx, strings.Split(*only, ","), strings.Split(*sessions, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

type bench struct {
	reps     int
	stored   int
	profiles string
	dir      string // for binaries and data, removed at the end
	base     string // of the model server
}

func (b *bench) run(ctx context.Context, only, sessions []string) (err error) {
	if b.dir, err = os.MkdirTemp("", "troupe-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	if err := b.build(ctx); err != nil {
		return err
	}
	m, err := b.machine(ctx)
	if err != nil {
		return err
	}
	fmt.Println(m)
	stop, err := b.serve(ctx)
	if err != nil {
		return err
	}
	defer stop()
	for _, part := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"sessions", func(ctx context.Context) error { return b.sessions(ctx, sessions) }},
		{"long", b.long},
		{"appends", b.appends},
		{"process", b.process},
		{"durability", b.durability},
		{"recovery", func(ctx context.Context) error { return b.recovery(ctx, b.stored) }},
		{"api", b.api},
	} {
		if !slices.Contains(only, part.name) {
			continue
		}
		if err := part.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}

// build makes every binary that is run.
func (b *bench) build(ctx context.Context) error {
	for name, pkg := range map[string]string{"mock": "./test/bench/mock", "bare": "./test/bench/bare", "turns": "./test/bench/turns", "recover": "./test/bench/recover", "served": "./test/bench/served", "troupe": "./cmd/troupe"} {
		if _, err := output(b.command(ctx, "go", "build", "-trimpath", "-o", filepath.Join(b.dir, name), pkg)); err != nil {
			return err
		}
	}
	_, err := output(b.command(ctx, "go", "test", "-c", "-o", filepath.Join(b.dir, "store"), "./persistence/badger"))
	return err
}
