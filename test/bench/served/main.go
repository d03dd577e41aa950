// Command served is a runtime behind the HTTP API whose processor time and memory are measured from outside. It says its address, and
// then answers each line of its input with one of JSON: `mark` where it stands, `cpu` its processor time alone, `library S T W` S sessions of T turns, watched where W is 1, played by the library in this same process,
// `first N` how long the first text of N answers took to reach the library's user. It ends with its input.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime/pprof"
	"sync"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model/openai"
	"github.com/troupe-dev/troupe/test/bench/load"
)

func main() {
	s := &served{}
	flag.StringVar(&s.data, "data", "", "data directory")
	flag.StringVar(&s.base, "base", "", "model server")
	flag.StringVar(&s.folder, "folder", "", "folder of the sessions, with a note in it")
	flag.StringVar(&s.profiles, "profiles", "", "write CPU profiles of what lies between two `cpu` below this folder")
	flag.Parse()
	load.Exit(s.run(context.Background()))
}

type served struct {
	data, base, folder, profiles string

	rt    *troupe.Runtime
	marks int
}

func (s *served) run(ctx context.Context) (err error) {
	m, err := openai.New(openai.Options{BaseURL: s.base, APIKey: openai.Key("sk-bench")})
	if err != nil {
		return err
	}
	s.rt, err = troupe.New(ctx, troupe.Options{
		Model: m, DataDir: s.data, Agents: []troupe.Agent{{Name: "default", System: load.System, Tools: []string{load.Tool}}},
	})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, s.rt.Close(ctx))
	}
	serving, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- gateway.Serve(serving, l, gateway.New(s.rt, gateway.Options{})) }()
	fmt.Println(l.Addr())
	err = s.obey(ctx)
	stop()
	return errors.Join(err, <-done, s.rt.Close(ctx))
}

// obey answers each line of the input.
func (s *served) obey(ctx context.Context) error {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var what string
		var n, turns, watched int
		_, _ = fmt.Sscan(in.Text(), &what, &n, &turns, &watched) // what is not there is 0
		var answer any
		var err error
		switch what {
		case "mark":
			answer = load.Here()
		case "cpu":
			err = s.profile()
			answer = load.Mark{CPU: load.CPU()}
		case "library":
			answer, err = s.library(ctx, n, turns, watched > 0)
		case "first":
			answer, err = s.first(ctx, n)
		default:
			err = fmt.Errorf("what is %q", in.Text())
		}
		if err == nil {
			err = json.NewEncoder(os.Stdout).Encode(answer)
		}
		if err != nil {
			return err
		}
	}
	return in.Err()
}

// profile begins a profile, and ends the one before.
func (s *served) profile() error {
	if s.profiles == "" {
		return nil
	}
	pprof.StopCPUProfile()
	s.marks++
	f, err := os.Create(filepath.Join(s.profiles, fmt.Sprintf("api-%02d.prof", s.marks)))
	if err != nil {
		return err
	}
	return pprof.StartCPUProfile(f) // the file lasts as long as the process
}

func (s *served) session(ctx context.Context) (*troupe.Session, error) {
	return s.rt.Session(ctx, troupe.SessionOptions{Dir: s.folder, Trust: troupe.Full, Model: load.Model})
}

// library plays sessions, all at once, in this process, and gives the processor time of it.
func (s *served) library(ctx context.Context, sessions, turns int, watched bool) (any, error) {
	before := load.CPU()
	var all sync.WaitGroup
	errs := make([]error, sessions)
	for i := range sessions {
		all.Go(func() {
			v, err := s.session(ctx)
			for n := 0; n < turns && err == nil; n++ {
				err = turn(ctx, v, n, watched)
			}
			errs[i] = err
		})
	}
	all.Wait()
	return load.Mark{CPU: load.CPU() - before}, errors.Join(errs...)
}

// turn plays one, with a look at each of its events or at its result alone.
func turn(ctx context.Context, v *troupe.Session, n int, watched bool) error {
	outcome := ""
	if watched {
		for ev, err := range v.Stream(ctx, load.Prompt(n)) {
			if err != nil {
				return err
			}
			outcome = ev.GetOutcome() // of the last one
		}
	} else {
		res, err := v.Run(ctx, load.Prompt(n))
		if err != nil {
			return err
		}
		outcome = res.Outcome
	}
	if outcome != "done" {
		return fmt.Errorf("turn %d came to %q", n, outcome)
	}
	return nil
}

// first is how long the first text of an answer takes from the model server's write to the user of the library.
func (s *served) first(ctx context.Context, n int) (any, error) {
	v, err := s.session(ctx)
	if err != nil {
		return nil, err
	}
	var took []float64
	for range n {
		seen := false
		for ev, err := range v.Stream(ctx, load.Stamped) {
			if err != nil {
				return nil, err
			}
			if us, is := load.Since(ev.GetText()); !seen && ev.GetType() == messages.EventTextDelta && is {
				took, seen = append(took, us), true
			}
		}
		if !seen {
			return nil, errors.New("an answer had no text with a stamp")
		}
	}
	return load.QuantilesOf(took), nil
}
