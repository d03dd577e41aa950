package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/test/bench/load"
)

const (
	apiSessions, apiTurns = 100, 10 // of what the API is compared with the library on
	apiIdle               = 2000    // sessions that rest, and streams that are open
	apiFirst              = 300     // answers whose first text is timed
)

// api measures what the HTTP API adds to the library. Both work in the same process, in turns; clients are processes of their own, and do not count.
func (b *bench) api(ctx context.Context) error {
	s, err := b.startServed(ctx)
	if err != nil {
		return err
	}
	err = s.overhead(ctx, b.reps)
	if err == nil {
		err = s.firstText(ctx)
	}
	if cerr := s.end(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if err := b.apiMemory(ctx); err != nil {
		return err
	}
	return b.readyTime(ctx)
}

// served is the process under test.
type served struct {
	in      io.WriteCloser
	out     *bufio.Reader
	wait    func() error
	address string
	folder  string
	client  *http.Client
}

func (b *bench) startServed(ctx context.Context) (*served, error) {
	data, err := os.MkdirTemp(b.dir, "served-")
	if err != nil {
		return nil, err
	}
	folder, err := load.Folder(data, "work")
	if err != nil {
		return nil, err
	}
	args := []string{"-base", b.base, "-data", filepath.Join(data, "data"), "-folder", folder}
	if b.profiles != "" {
		args = append(args, "-profiles", b.profiles)
	}
	cmd := b.pinned(ctx, 1, "served", args...)
	cmd.Stderr = os.Stderr
	s := &served{wait: cmd.Wait, folder: folder, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * apiSessions}}}
	if s.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start the server: %w", err)
	}
	s.out = bufio.NewReader(out)
	line, err := s.out.ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("start the server: %w", err)
	}
	s.address = strings.TrimSpace(line)
	return s, nil
}

func (s *served) end() error {
	s.client.CloseIdleConnections()
	if err := s.in.Close(); err != nil {
		return err
	}
	return s.wait()
}

// tell gives the process a line and reads its answer.
func (s *served) tell(into any, line string, args ...any) error {
	if _, err := fmt.Fprintf(s.in, line+"\n", args...); err != nil {
		return err
	}
	answer, err := s.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("%s: %w", line, err)
	}
	return json.Unmarshal(answer, into)
}

// The ways to play a turn over the API.
const (
	byResult = "API: input that waits for its result"
	byPoll   = "API: input, then a long poll"
	byStream = "API: input, then an event stream that stays open"
)

// overhead compares the processor time of a turn.
func (s *served) overhead(ctx context.Context, reps int) error {
	ways := []string{"library", "library, with a look at every event", byResult, byPoll, byStream}
	used := make([][]float64, len(ways))
	for rep := range reps + 1 {
		for i := range ways {
			var before, after load.Mark
			if i < 2 {
				if err := s.tell(&after, "library %d %d %d", apiSessions, apiTurns, i); err != nil {
					return err
				}
			} else {
				if err := s.tell(&before, "cpu"); err != nil {
					return err
				}
				if err := each(apiSessions, func(int) error { return s.play(ctx, ways[i]) }); err != nil {
					return err
				}
				if err := s.tell(&after, "cpu"); err != nil {
					return err
				}
			}
			if rep > 0 { // the first one warms up
				used[i] = append(used[i], (after.CPU-before.CPU)*1000/(apiSessions*apiTurns))
			}
		}
	}
	fmt.Printf("| %d sessions x %d turns | CPU ms/turn of the server (minimum) | ratio | median | ratio |\n|---|---:|---:|---:|---:|\n", apiSessions, apiTurns)
	for i, way := range ways {
		low, mid := slices.Min(used[i]), median(used[i])
		fmt.Printf("| %s | %.3f | %.2f | %.3f | %.2f |\n", way, low, low/slices.Min(used[0]), mid, mid/median(used[0]))
	}
	fmt.Println()
	return nil
}

// firstText compares how long the first text of an answer takes from the model to who waits for it.
func (s *served) firstText(ctx context.Context) error {
	var near, far load.Quantiles
	if err := s.tell(&near, "first %d", apiFirst); err != nil {
		return err
	}
	far, err := s.firstOverHTTP(ctx, apiFirst)
	if err != nil {
		return err
	}
	fmt.Println("| first text, from the model server's write | p50 ms | p99 ms |")
	fmt.Println("|---|---:|---:|")
	fmt.Printf("| to the library's user | %.2f | %.2f |\n| to the client's event stream | %.2f | %.2f |\n| added by the API | %.2f | |\n\n",
		near.P50/1000, near.P99/1000, far.P50/1000, far.P99/1000, (far.P50-near.P50)/1000)
	return nil
}

// apiMemory is what a session that rests keeps, and an open stream.
func (b *bench) apiMemory(ctx context.Context) error {
	s, err := b.startServed(ctx)
	if err != nil {
		return err
	}
	err = s.memory(ctx)
	if cerr := s.end(); err == nil {
		err = cerr
	}
	return err
}

func (s *served) memory(ctx context.Context) error {
	var ids []string
	if err := each(apiSessions, func(int) error { return s.play(ctx, byPoll) }); err != nil { // what is there once for all
		return err
	}
	s.client.CloseIdleConnections()
	var empty, idle, open load.Mark
	if err := s.tell(&empty, "mark"); err != nil {
		return err
	}
	all := make([]string, apiIdle)
	for part := range slices.Chunk(all, apiSessions) {
		if err := each(len(part), func(i int) error {
			id, err := s.create(ctx)
			if part[i] = id; err == nil {
				err = s.turnByPoll(ctx, id, 0)
			}
			return err
		}); err != nil {
			return err
		}
	}
	s.client.CloseIdleConnections()
	ids = all
	if err := s.tell(&idle, "mark"); err != nil {
		return err
	}
	streams := make([]*events, apiIdle)
	defer func() {
		for _, e := range streams {
			if e != nil {
				e.close()
			}
		}
	}()
	for i := range streams {
		e, err := s.follow(ctx, ids[i%(apiIdle/10)])
		if err != nil {
			return err
		}
		streams[i] = e
	}
	if err := s.tell(&open, "mark"); err != nil {
		return err
	}
	fmt.Println("| memory | resident KiB | heap and stacks KiB | goroutines |")
	fmt.Println("|---|---:|---:|---:|")
	for _, row := range []struct {
		what   string
		before load.Mark
		after  load.Mark
	}{{"a session that rests, after one turn", empty, idle}, {"an open event stream", idle, open}} {
		fmt.Printf("| %s | %.1f | %.1f | %.1f |\n", row.what, (row.after.ResidentKB-row.before.ResidentKB)/apiIdle, (row.after.LiveKB-row.before.LiveKB)/apiIdle,
			float64(row.after.Goroutines-row.before.Goroutines)/apiIdle)
	}
	fmt.Printf("\n%d sessions, then %d streams, ten to a session; memory that is free was given back to the system first. The process with nothing but %d sessions had %.1f MiB.\n\n",
		apiIdle, apiIdle, apiSessions, empty.ResidentKB/1024)
	return nil
}

// readyTime is how long `troupe serve` takes, from its start, until it takes work on a store full of sessions.
func (b *bench) readyTime(ctx context.Context) error {
	data, err := os.MkdirTemp(b.dir, "ready-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(data)
	var filled map[string]int
	if err := b.recover(ctx, &filled, data, "fill", "-sessions", strconv.Itoa(b.stored)); err != nil {
		return err
	}
	var took []float64
	for range b.reps {
		ms, err := b.ready(ctx, data)
		if err != nil {
			return err
		}
		took = append(took, ms)
	}
	fmt.Printf("`troupe serve` on a store of %d sessions took work %.0f ms after its start (median; the slowest %.0f ms).\n\n", filled["sessions"], median(took), slices.Max(took))
	return nil
}

func (b *bench) ready(ctx context.Context, data string) (ms float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	cmd := b.command(ctx, filepath.Join(b.dir, "troupe"), "serve", "--data", data, "--listen", "127.0.0.1:0")
	home := data + "-home"
	if err := os.MkdirAll(home, 0o700); err != nil {
		return 0, err
	}
	cmd.Dir, cmd.Env = home, append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_STATE_HOME="+home)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer func() {
		_ = cmd.Process.Signal(os.Interrupt) // it is waited for below
		_ = cmd.Wait()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("the server says nothing: %w\n%s", err, said.String())
	}
	for ctx.Err() == nil {
		res, err := http.Get(strings.TrimSpace(line) + "/readyz") //nolint:noctx // the process is bounded
		if err != nil {
			return 0, err
		}
		res.Body.Close()
		if res.StatusCode == http.StatusOK {
			return time.Since(began).Seconds() * 1000, nil
		}
		<-time.After(2 * time.Millisecond) // who asks all the time is what it waits for
	}
	return 0, ctx.Err()
}
