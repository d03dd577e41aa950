package chaos

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/memory"
)

// localHost runs lives inside this process, on a memory store: quick, and what they leave behind of
// goroutines and files shows. A kill cuts the store off; what was under way finds nobody any more.
type localHost struct {
	mu    sync.Mutex
	store *memory.Store
}

// Begin opens the next life on what the last one has made durable.
func (h *localHost) Begin(ctx context.Context, c lifeConfig) (life, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.store == nil {
		h.store = memory.New()
	} else {
		h.store = h.store.Reopen()
	}
	l := &localLife{over: make(chan struct{})}
	in, err := openInside(ctx, c, h.store, slog.New(slog.DiscardHandler), func(why string) {
		l.endedBy(moment(why))
	})
	if err != nil {
		return nil, fmt.Errorf("begin a life: %w", err)
	}
	l.in, l.Runtime = in, in.rt
	return l, nil
}

// Store is the memory store, opened anew.
func (h *localHost) Store(context.Context, lifeConfig) (persistence.Store, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.store == nil {
		h.store = memory.New()
	}
	h.store = h.store.Reopen()
	return h.store, nil
}

type localLife struct {
	*troupe.Runtime
	in   *inside
	over chan struct{}
	once sync.Once
	end  ending
}

func (l *localLife) endedBy(at moment) {
	l.once.Do(func() {
		l.end = ending{at: at}
		close(l.over)
	})
}

// Person implements life: in one process there are no connections.
func (l *localLife) Person(context.Context) (node, error) { return l.Runtime, nil }

// Over implements life.
func (l *localLife) Over() <-chan struct{} { return l.over }

// Kill implements life.
func (l *localLife) Kill() { l.in.cutter.end(string(outside)) }

// Close implements life. It is also what takes away the remains of a killed one.
func (l *localLife) Close(ctx context.Context) error {
	l.endedBy(orderly)
	return l.in.close(ctx)
}

// End implements life.
func (l *localLife) End() ending { return l.end }
