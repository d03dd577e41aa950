// Command recover fills a store with sessions and measures what it takes to have them back. Each thing is
// measured in a process of its own, so that nothing is in memory but the page cache.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/model/script"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/badger"
	"github.com/troupe-dev/troupe/test/bench/load"
)

// errands is a turn with a call, as in the other benchmarks; the answers come at once.
const errands = `
name: errands
rules:
  - steps:
      - tool_calls: [{name: read_file, arguments: {path: note.txt}}]
      - text: The note says that the work goes on, that nobody has to wait and that the tests are green.
`

// atOnce is how many sessions are made or resumed at the same time.
const atOnce = 256

func main() {
	r := &recovery{}
	do := ""
	flag.StringVar(&r.data, "data", "", "data directory")
	flag.StringVar(&do, "do", "", "fill, resume or long")
	flag.IntVar(&r.sessions, "sessions", 10_000, "sessions to fill the store with")
	flag.IntVar(&r.turns, "turns", 1, "turns of each session")
	flag.BoolVar(&r.whole, "whole", false, "resume without snapshots")
	flag.Parse()
	load.Exit(r.run(context.Background(), do))
}

type recovery struct {
	data            string
	sessions, turns int
	whole           bool
}

func (r *recovery) run(ctx context.Context, do string) error {
	var result any
	var err error
	switch do {
	case "fill":
		result, err = r.fill(ctx)
	case "resume":
		result, err = r.resume(ctx)
	case "long":
		result, err = r.long(ctx)
	default:
		err = fmt.Errorf("-do %q: want fill, resume or long", do)
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

// opened is a runtime and what it stands on.
type opened struct {
	*troupe.Runtime
	store *counting
}

func (r *recovery) openStore(ctx context.Context) (*counting, error) {
	s, err := badger.Open(ctx, badger.Options{Dir: troupe.StoreDir(r.data), Ballast: -1})
	if err != nil {
		return nil, err
	}
	return &counting{Store: s, whole: r.whole}, nil
}

func (r *recovery) start(ctx context.Context, store *counting) (*opened, error) {
	text, err := script.Parse("errands.yaml", []byte(errands))
	if err != nil {
		return nil, err
	}
	rt, err := troupe.New(ctx, troupe.Options{
		Model: text.Model(), Store: store, DataDir: r.data,
		Agents: []troupe.Agent{{Name: "default", System: load.System, Tools: []string{load.Tool}}},
	})
	if err != nil {
		return nil, errors.Join(err, store.Close()) //nolint:contextcheck // it takes none, and bounds itself
	}
	return &opened{rt, store}, nil
}

func (o *opened) close(ctx context.Context) error {
	return errors.Join(o.Close(ctx), o.store.Close()) //nolint:contextcheck // it takes none, and bounds itself
}

// fill makes the sessions and closes the store in order.
func (r *recovery) fill(ctx context.Context) (_ any, err error) {
	store, err := r.openStore(ctx)
	if err != nil {
		return nil, err
	}
	rt, err := r.start(ctx, store)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rt.close(ctx)) }()
	dirs := make([]string, min(atOnce, r.sessions))
	for i := range dirs {
		if dirs[i], err = load.Folder(r.work(), fmt.Sprint(i)); err != nil {
			return nil, err
		}
	}
	ids := make([]string, r.sessions)
	err = side(len(ids), func(slot, i int) error {
		s, err := rt.Session(ctx, troupe.SessionOptions{Dir: dirs[slot], Trust: troupe.Full, Model: load.Model})
		if err != nil {
			return err
		}
		ids[i] = s.ID()
		for n := range r.turns {
			if res, err := s.Run(ctx, load.Prompt(n)); err != nil || res.Outcome != "done" {
				return fmt.Errorf("turn %d of session %d: %+v, %w", n, i, res, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return map[string]int{"sessions": len(ids)}, r.keep(ids)
}

// work is where the sessions' folders are: beside the data directory, because no session works in that of its runtime.
func (r *recovery) work() string { return r.data + "-work" }

// keep writes down which sessions there are.
func (r *recovery) keep(ids []string) error {
	text, err := json.Marshal(ids)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.data, "ids"), text, 0o600)
}

// side does n things, some of them at the same time.
func side(n int, do func(slot, i int) error) error {
	var all sync.WaitGroup
	slots := min(atOnce, n)
	errs := make([]error, slots)
	for slot := range slots {
		all.Go(func() {
			for i := slot; i < n && errs[slot] == nil; i += slots {
				errs[slot] = do(slot, i)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func (r *recovery) ids() (ids []string, err error) {
	text, err := os.ReadFile(filepath.Join(r.data, "ids"))
	if err != nil {
		return nil, err
	}
	return ids, json.Unmarshal(text, &ids)
}

var _ persistence.Store = (*counting)(nil)
