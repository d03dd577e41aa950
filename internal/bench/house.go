package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model/openai"
)

// closeWithin bounds the end of a runtime.
const closeWithin = 20 * time.Second

// house is a runtime on a data directory, with folders for its agents beside it.
type house struct {
	*troupe.Runtime
	work string
}

func open(ctx context.Context, base, dir string, idle time.Duration) (*house, error) {
	m, err := openai.New(openai.Options{BaseURL: base, APIKey: openai.Key("none")})
	if err != nil {
		return nil, err
	}
	rt, err := troupe.New(ctx, troupe.Options{
		Model: m, DataDir: filepath.Join(dir, "data"), Reserve: 1, IdleAfter: idle,
		Agents: []troupe.Agent{{Name: "default", System: "You read notes.", Tools: []string{"read_file"}}},
	})
	if err != nil {
		return nil, err
	}
	return &house{rt, filepath.Join(dir, "work")}, nil
}

// close ends the runtime also when ctx has ended.
func (h *house) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
	defer cancel()
	return h.Close(ctx)
}

// lookForRoom is how often a house looks whether its disk has room: without it turns wait, which a measurement does not.
const lookForRoom = 200 * time.Millisecond

// watched is a context that ends when the disk has no room left. end has to be called, with the error of what was done meanwhile: it gives the reason
// for it.
func (h *house) watched(ctx context.Context) (_ context.Context, end func(error) error) {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		tick := time.NewTicker(lookForRoom)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				ended <- nil
				return
			case <-tick.C:
			}
			if err := h.Room(); err != nil {
				cancel(err)
				ended <- fmt.Errorf("the disk has no room to go on: %w", err)
				return
			}
		}
	}()
	return ctx, func(err error) error {
		cancel(nil)
		if full := <-ended; full != nil {
			return full
		}
		return err
	}
}

// session makes session i in a folder of its own.
func (h *house) session(ctx context.Context, i int) (*troupe.Session, error) {
	dir, err := folder(h.work, strconv.Itoa(i))
	if err != nil {
		return nil, err
	}
	return h.Session(ctx, troupe.SessionOptions{Dir: dir, Trust: troupe.Full, Model: "bench"})
}

// turn plays one turn and says what is wrong with it.
func turn(ctx context.Context, s *troupe.Session, n int) error {
	res, err := s.Run(ctx, "Turn "+strconv.Itoa(n)+": what does the note say?")
	if err == nil {
		err = wrong(s, res)
	}
	return err
}

func wrong(s *troupe.Session, res *troupe.Result) error {
	switch {
	case !res.Scripted:
		return fmt.Errorf("session %s: a language model answered", s.ID())
	case res.Outcome != "done" || len(res.ToolCalls) != 1 || res.ToolCalls[0].GetStatus() != "ok":
		return fmt.Errorf("session %s: a turn ended with %s %s and %d calls", s.ID(), res.Outcome, res.Reason, len(res.ToolCalls))
	}
	return nil
}

// inMemory counts the sessions that the runtime holds.
func (h *house) inMemory(ctx context.Context) (int, error) {
	r, err := h.Ask(ctx, &messages.DescribeTree{})
	if err != nil {
		return 0, err
	}
	tree, ok := r.(*messages.Tree)
	if !ok {
		return 0, fmt.Errorf("look at the live tree: %T", r)
	}
	n := 0
	for _, c := range tree.GetRoot().GetChildren() {
		if c.GetKind() == "session" {
			n++
		}
	}
	return n, nil
}

// side does n things at the same time.
func side(n int, do func(i int) error) error {
	var all sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		all.Go(func() { errs[i] = do(i) })
	}
	all.Wait()
	return errors.Join(errs...)
}
