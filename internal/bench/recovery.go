package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/troupe-dev/troupe"
)

// Recovery is what it took to go on after a kill.
type Recovery struct {
	Agents  int     `json:"agents"`
	Turns   int     `json:"turns"`         // that were finished and reported when the process was killed
	Lost    int     `json:"lost"`          // of them; anything but 0 is a defect
	OpenMs  float64 `json:"open_ms"`       // until the runtime was open on what the killed one left
	FirstMs float64 `json:"first_ms"`      // until the first agent had ended its open turn, from there
	AllMs   float64 `json:"all_ms"`        // until all had
	NextMs  float64 `json:"next_turn_ms"`  // a new turn then
	PerS    float64 `json:"agents_per_s"`  // brought back, with their turns
	Resumed int     `json:"turns_resumed"` // turns that were open at the kill, and ended well after it
}

// killAfter is how many turns of each agent are finished before the kill, in the mean.
const killAfter = 2

// lifeConfig is what a process that will be killed is told.
type lifeConfig struct {
	Base, Dir string
	Agents    int
}

// ended is what it says of each turn that has ended.
type ended struct {
	Session string
	Turns   int
}

// recovery kills a process while its agents work, and goes on in this one.
func (b *run) recovery(ctx context.Context) (out *Recovery, err error) {
	dir := filepath.Join(b.Dir, "recovery")
	told, err := b.killed(ctx, dir)
	if err != nil {
		return nil, err
	}
	out = &Recovery{Agents: len(told)}
	began := time.Now()
	h, err := open(ctx, b.base, dir, 0)
	if err != nil {
		return nil, err
	}
	ctx, end := h.watched(ctx)
	defer func() { err = errors.Join(end(err), h.close(ctx)) }()
	out.OpenMs, began = ms(began), time.Now()
	var mu sync.Mutex
	var ids []string
	for id := range told {
		ids = append(ids, id)
	}
	var last *troupe.Session
	err = side(len(ids), func(i int) error {
		s, turns, err := h.resume(ctx, ids[i])
		mu.Lock()
		defer mu.Unlock()
		if out.FirstMs == 0 {
			out.FirstMs = ms(began)
		}
		n := told[ids[i]]
		out.Turns, out.Lost, out.Resumed = out.Turns+n, out.Lost+max(0, n-turns), out.Resumed+max(0, turns-n)
		last = s
		return err
	})
	out.AllMs = ms(began)
	out.PerS = float64(len(ids)) / out.AllMs * 1000
	if err != nil || last == nil {
		return nil, err
	}
	began = time.Now()
	if err := turn(ctx, last, 0); err != nil {
		return nil, err
	}
	out.NextMs = ms(began)
	return out, nil
}

// resume waits for the end of the turn that was open, and counts the turns.
func (h *house) resume(ctx context.Context, id string) (*troupe.Session, int, error) {
	s, err := h.Open(ctx, id)
	if err != nil {
		return nil, 0, err
	}
	res, err := s.Wait(ctx)
	if err != nil {
		return s, 0, err
	}
	if err := wrong(s, res); err != nil {
		return s, 0, err
	}
	hist, err := s.History(ctx)
	return s, len(hist.GetTurns()), err
}

// killed lets a process work, kills it, and tells how many turns of each session it has said to be ended.
func (b *run) killed(ctx context.Context, dir string) (map[string]int, error) {
	c, err := begin(ctx, childLife, lifeConfig{b.base, dir, b.Agents})
	if err != nil {
		return nil, err
	}
	told := make(map[string]int)
	for said := 0; said < killAfter*b.Agents || len(told) < b.Agents; said++ {
		line, err := c.line()
		if err != nil {
			return nil, err
		}
		if err := noted(told, line); err != nil {
			c.kill()
			return nil, err
		}
		b.Count(1)
	}
	_ = c.cmd.Process.Kill() // it may have ended just now
	rest, err := io.ReadAll(c.out)
	if !c.kill() && runtime.GOOS != "windows" { // where who is killed looks as if it had exited
		return nil, fmt.Errorf("the process ended before it was killed: %s", strings.TrimSpace(c.said.String()))
	}
	for line := range strings.Lines(string(rest)) { // what it said before it died counts, too
		if strings.HasSuffix(line, "\n") && err == nil {
			err = noted(told, line)
		}
	}
	return told, err
}

func noted(told map[string]int, line string) error {
	var e ended
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		return fmt.Errorf("read what a process says: %w", err)
	}
	told[e.Session] = e.Turns
	return nil
}

// live works, turn after turn, until it is killed.
func live(ctx context.Context, config []byte, out io.Writer) error {
	var c lifeConfig
	if err := json.Unmarshal(config, &c); err != nil {
		return fmt.Errorf("read what is to be done: %w", err)
	}
	h, err := open(ctx, c.Base, c.Dir, 0)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	ctx, end := h.watched(ctx)
	err = side(c.Agents, func(i int) error {
		s, err := h.session(ctx, i)
		for n := 1; err == nil; n++ {
			if err = turn(ctx, s, n); err == nil {
				mu.Lock()
				err = json.NewEncoder(out).Encode(ended{s.ID(), n})
				mu.Unlock()
			}
		}
		return err
	})
	return errors.Join(end(err), h.close(ctx))
}
