// Command turns puts the load of the benchmarks on package troupe.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/model/openai"
	"github.com/troupe-dev/troupe/test/bench/load"
)

func main() {
	o, err := load.Flags()
	if err == nil {
		err = measure(context.Background(), o)
	}
	load.Exit(err)
}

func measure(ctx context.Context, o *load.Options) (err error) {
	folders, err := os.MkdirTemp("", "troupe-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folders)
	m, err := openai.New(openai.Options{BaseURL: o.Base, APIKey: openai.Key("sk-bench")})
	if err != nil {
		return err
	}
	rt, err := troupe.New(ctx, troupe.Options{
		Model: m, DataDir: o.Data,
		// The bare loop offers one tool, and so does this agent.
		Agents: []troupe.Agent{{Name: "default", System: load.System, Tools: []string{load.Tool}}},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rt.Close(ctx)) }()
	// Folders are not part of the work: they are there before it begins.
	count := max(o.Sessions, o.Repeat)
	for i := -1; i < count; i++ {
		if _, err := load.Folder(folders, strconv.Itoa(i)); err != nil {
			return err
		}
	}
	return load.Run(ctx, "troupe", o, func(ctx context.Context, i int) (load.Turn, error) {
		dir := folders + "/" + strconv.Itoa(i)
		s, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir, Trust: troupe.Full, Model: load.Model})
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, n int) error { return play(ctx, s, n) }, nil
	})
}

func play(ctx context.Context, s *troupe.Session, n int) error {
	res, err := s.Run(ctx, load.Prompt(n))
	switch {
	case err != nil:
		return err
	case res.Outcome != "done" || len(res.ToolCalls) != 1 || res.ToolCalls[0].GetStatus() != "ok":
		return fmt.Errorf("turn %d of %s: %s %s with %d calls", n, s.ID(), res.Outcome, res.Reason, len(res.ToolCalls))
	}
	return nil
}
