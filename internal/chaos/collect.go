package chaos

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// history gathers what a lane has left behind, and what its clients were told.
func (l *lane) history(ctx context.Context, whole bool) (*History, error) {
	h := &History{
		Streams: make(map[string][]persistence.Entry), Acks: l.acks, Results: l.results, Seen: l.seen, Refused: l.refused,
		Answers: l.answers, Listed: l.left,
		EndedMs: time.Now().UnixMilli(), Whole: whole, Before: &Counts{}, After: &Counts{Pending: l.waiting},
	}
	for _, s := range l.sessions {
		h.Requests = append(h.Requests, l.model.asked(s.turns)...)
		for _, w := range s.spaces {
			if w.GetName() == guardedName && !s.asks {
				h.Guarded = append(h.Guarded, w.GetUri())
			}
		}
	}
	var err error
	if h.Effects, err = readEffects(l.files.Log); err != nil {
		return nil, err
	}
	if h.Files, err = readFiles(l.dir); err != nil {
		return nil, err
	}
	store, err := l.host.Store(ctx, l.files)
	if err != nil {
		return nil, fmt.Errorf("read what lane %d has left: %w", l.n, err)
	}
	return h, errors.Join(h.read(ctx, store), store.Close())
}

// read takes over everything that a store holds.
func (h *History) read(ctx context.Context, s persistence.Store) error {
	err := s.Streams(ctx, "", func(name string) error {
		err := s.Read(ctx, name, 1, func(e persistence.Entry) error {
			h.Streams[name] = append(h.Streams[name], e)
			return nil
		})
		if err != nil {
			return err
		}
		return h.readSnapshots(ctx, s, name)
	})
	if err != nil {
		return fmt.Errorf("read the journals: %w", err)
	}
	if _, err := s.Verify(ctx, nil, func(f persistence.Finding) { h.Findings = append(h.Findings, f) }); err != nil {
		return fmt.Errorf("verify the store: %w", err)
	}
	return nil
}

// readSnapshots takes over the snapshots of a stream, the newest first.
func (h *History) readSnapshots(ctx context.Context, s persistence.Store, stream string) error {
	for below := uint64(0); ; {
		snap, err := s.Snapshot(ctx, stream, below)
		if errors.Is(err, persistence.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		h.Snapshots = append(h.Snapshots, snap)
		if below = snap.GetSeq(); below <= 1 {
			return nil
		}
	}
}

// readFiles reads the workspaces of a lane.
func readFiles(dir string) (map[string]string, error) {
	out := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		rel, relErr := filepath.Rel(dir, path)
		if err != nil || relErr != nil {
			return errors.Join(err, relErr)
		}
		if d.IsDir() && rel == "data" {
			return filepath.SkipDir
		}
		if !d.Type().IsRegular() || !strings.HasPrefix(rel, "work-") && !strings.HasPrefix(rel, "guarded-") {
			return nil
		}
		b, err := os.ReadFile(path)
		out[rel] = string(b)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the workspaces: %w", err)
	}
	return out, nil
}

// count counts the resources of this process.
func count() *Counts {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	c := &Counts{Goroutines: runtime.NumGoroutine(), HeapBytes: int64(m.HeapAlloc)} //nolint:gosec // far below 2^63
	if open, err := os.ReadDir("/proc/self/fd"); err == nil {
		c.Files = len(open)
	}
	return c
}

// settleTime is how long a process may take to be back at its baseline.
const settleTime = 30 * time.Second

// settled counts again until a process is back at its baseline, or the time is up.
func settled(ctx context.Context, before *Counts) *Counts {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	bound := time.NewTimer(settleTime)
	defer bound.Stop()
	for {
		now := count()
		if len(Check(&History{Before: before, After: now})) == 0 {
			return now
		}
		select {
		case <-tick.C:
		case <-bound.C:
			return now
		case <-ctx.Done():
			return now
		}
	}
}

// drain waits, after the last turn, until no message waits in a mailbox any more, and keeps how many do.
func (l *lane) drain(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	bound := time.NewTimer(settleTime)
	defer bound.Stop()
	for {
		reply, err := l.ask(ctx, &messages.DescribeTree{})
		if err != nil {
			return fmt.Errorf("look at the live tree: %w", err)
		}
		t, ok := reply.(*messages.Tree)
		if !ok {
			return fmt.Errorf("look at the live tree: answered %T", reply)
		}
		if l.waiting = waitingIn(t.GetRoot()); l.waiting == 0 {
			return l.listed(ctx)
		}
		select {
		case <-tick.C:
		case <-bound.C:
			return l.listed(ctx) // R12 finds it
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// listed keeps the approvals that are said to wait.
func (l *lane) listed(ctx context.Context) error {
	reply, err := l.ask(ctx, &messages.ListApprovals{})
	if err != nil {
		return fmt.Errorf("list the approvals: %w", err)
	}
	all, ok := reply.(*messages.Approvals)
	if !ok {
		return fmt.Errorf("list the approvals: answered %T", reply)
	}
	for _, a := range all.GetApprovals() {
		l.left = append(l.left, a.GetApprovalId())
	}
	return nil
}

func waitingIn(a *messages.ActorView) int {
	n := int(a.GetPending())
	for _, c := range a.GetChildren() {
		n += waitingIn(c)
	}
	return n
}
