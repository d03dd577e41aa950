// Package load puts the same work on every system that the benchmarks compare: conversations of
// turns, where a turn is a prompt, a model call, a tool call that reads a small file, a second model
// call, all of it durable. It measures its own process, so each system runs in one of its own.
package load

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"
)

// What both systems say and offer.
const (
	System = "You are a helpful agent. Use the tools when needed and answer briefly."
	Model  = "mock-1"
	Tool   = "read_file"
	note   = "The work goes on. Nobody has to wait. The tests are green.\n"
)

// Prompt is what the user says in turn n.
func Prompt(n int) string {
	return "Turn " + strconv.Itoa(n) + ": please read note.txt and tell me what it says."
}

// Options are the command line of a system under test.
type Options struct {
	Sessions int    // at once
	Turns    int    // of each session
	At       []int  // with these, one session is measured around these turns instead
	Repeat   int    // that many such sessions, one after the other
	Data     string // data directory; "" keeps everything in memory
	Base     string // base URL of the model server
	Prof     string // CPU profile to write
	MemProf  string // profile of allocations to write

	// Settle is how long to wait, after the last turn, for what is kept for a while only; without it
	// nothing is said about idle sessions.
	Settle time.Duration

	prof *os.File
}

// Flags reads the command line.
func Flags() (*Options, error) {
	o := &Options{}
	at := ""
	flag.IntVar(&o.Sessions, "sessions", 100, "sessions, all at once")
	flag.IntVar(&o.Turns, "turns", 4, "turns of each session")
	flag.StringVar(&at, "at", "", "measure one session around these turns, such as 10,100,1000")
	flag.IntVar(&o.Repeat, "repeat", 3, "with -at: sessions, one after the other")
	flag.StringVar(&o.Data, "data", "", "data directory; empty keeps everything in memory")
	flag.StringVar(&o.Base, "base", "http://127.0.0.1:18080/v1", "model server")
	flag.StringVar(&o.Prof, "prof", "", "write a CPU profile here")
	flag.StringVar(&o.MemProf, "memprof", "", "write a profile of allocations here")
	flag.DurationVar(&o.Settle, "settle", 0, "wait that long before idle sessions are measured; 0: do not measure them")
	flag.Parse()
	if at == "" {
		return o, nil
	}
	last := window
	for _, s := range strings.Split(at, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < last {
			return nil, fmt.Errorf("-at %s: want growing numbers of turns, the first at least %d, %d apart", at, window, window)
		}
		o.At, last = append(o.At, n), n+window
	}
	return o, nil
}

// Turn plays turn n of a conversation.
type Turn func(ctx context.Context, n int) error

// Open makes conversation i; its turns are played one after the other.
type Open func(ctx context.Context, i int) (Turn, error)

// Run measures a system in the way that the options ask for and prints one line of JSON.
func Run(ctx context.Context, system string, o *Options, open Open) error {
	warm, err := open(ctx, -1)
	if err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	rounds := 1
	if len(o.At) > 0 { // the first points must not pay for a cold process
		rounds = 100
	}
	for n := range rounds {
		if err := warm(ctx, n); err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
	}
	var result any
	if err := o.begin(); err != nil {
		return err
	}
	if len(o.At) > 0 {
		result, err = along(ctx, system, o, open)
	} else {
		result, err = beside(ctx, system, o, open)
	}
	if err := errors.Join(err, o.end()); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

func (o *Options) begin() error {
	if o.Prof == "" {
		return nil
	}
	f, err := os.Create(o.Prof)
	if err != nil {
		return err
	}
	o.prof = f
	return pprof.StartCPUProfile(f)
}

func (o *Options) end() error {
	if o.prof != nil {
		pprof.StopCPUProfile()
		if err := o.prof.Close(); err != nil {
			return err
		}
	}
	if o.MemProf == "" {
		return nil
	}
	f, err := os.Create(o.MemProf)
	if err != nil {
		return err
	}
	return errors.Join(pprof.Lookup("allocs").WriteTo(f, 0), f.Close())
}

// Folder makes a folder with a note in it, which the tool of every turn reads.
func Folder(parent, name string) (string, error) {
	dir := filepath.Join(parent, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, "note.txt"), []byte(note), 0o600)
}

// Exit reports how a system under test ended.
func Exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}
