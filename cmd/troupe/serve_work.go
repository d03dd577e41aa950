package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/run"

	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/pipeline"
)

// server is one `troupe serve`.
type server struct {
	a      *app
	loaded *config.Loaded
	log    *slog.Logger
	house  *house

	api, admin net.Listener // admin is nil where there is none
	metrics    *gateway.Metrics
	tls        *tls.Config // nil: plain text
	roots      []string
	fixed      map[[sha256.Size]byte]*messages.Token // of the configuration
	state      atomic.Int32
	started    time.Time
	stop       chan struct{} // closed: somebody asked for the end
	once       sync.Once
	late       []string // sessions with open turns or runs for which there was no room
}

// The states of a server, in order.
const (
	stateRecovering int32 = iota
	stateServing
	stateStopping
)

// ready says why the server does not take work.
func (s *server) ready() error {
	switch s.state.Load() {
	case stateRecovering:
		return errors.New("the server recovers what was running")
	case stateStopping:
		return errors.New("the server is stopping")
	}
	return s.house.rt.Room()
}

func (s *server) stopping() bool { return s.state.Load() == stateStopping }

func (s *server) askStop() { s.once.Do(func() { close(s.stop) }) }

// work serves until ctx ends, somebody asks for the end or the house fails, then stops in order: nothing new is begun, turns may end, streams are
// closed. What comes after is the house's: actors, then the store.
func (s *server) work(ctx, failed context.Context) error {
	over, end := context.WithCancel(context.WithoutCancel(ctx)) // of what is served
	defer end()
	var g run.Group
	g.Add(func() error {
		defer s.state.Store(stateStopping)
		if err := s.begin(ctx); err != nil {
			return err
		}
		again := time.NewTicker(recoverAgain)
		defer again.Stop()
		for {
			select {
			case <-again.C:
				s.recoverLate(ctx)
				continue
			case <-ctx.Done():
			case <-s.stop:
			case <-over.Done():
				return nil // what is served failed
			case <-failed.Done():
				return nil // so says the house
			}
			s.drain(ctx)
			return nil
		}
	}, func(error) { end() })
	api := gateway.New(s.house.rt, s.public())
	g.Add(func() error { return gateway.Serve(over, s.api, api) }, func(error) { end() })
	if s.admin != nil {
		g.Add(func() error { return gateway.Serve(over, s.admin, profiles()) }, func(error) { end() })
	}
	if err := g.Run(); err != nil {
		return &exitError{code: exitIO, what: err.Error(), err: err}
	}
	return nil
}

// begin goes on with what was running, and tells who waits for the server that it is there. It is served meanwhile.
func (s *server) begin(ctx context.Context) error {
	if err := s.remember(); err != nil {
		return err
	}
	if err := s.banner(); err != nil {
		return err
	}
	n, err := s.recover(ctx)
	switch {
	case errors.Is(err, context.Canceled):
		return nil
	case err != nil:
		return err
	case n > 0:
		s.a.note("troupe: %d sessions with open turns or runs go on", n)
	}
	s.state.CompareAndSwap(stateRecovering, stateServing)
	s.notify("READY=1")
	return nil
}

// recoverAgain is how often sessions are asked again for which there was no room.
const recoverAgain = 5 * time.Second

// recover brings the sessions into memory whose turns, or runs of pipelines, are open: they go on by themselves. One that fails stands in the log; those for which
// there is no room yet are asked again later.
func (s *server) recover(ctx context.Context) (int, error) {
	all, err := ask[*messages.Sessions](ctx, s.house, &messages.ListSessions{})
	if err != nil {
		return 0, fmt.Errorf("look for open turns: %w", err)
	}
	amid, err := s.amid(ctx)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, v := range all.GetSessions() {
		if !open(v) && !amid[v.GetId()] {
			continue
		}
		n++
		switch err := s.wake(ctx, v.GetId()); {
		case ctx.Err() != nil:
			return n, ctx.Err()
		case errors.Is(err, messages.ErrBusy):
			s.late = append(s.late, v.GetId())
		case err != nil:
			n--
			s.log.Warn("session does not go on", "session", v.GetId(), "err", err)
		}
	}
	return n, nil
}

// amid are sessions with something under way that no worker's turn shows: a turn in a shared conversation that was asked for, and may not have reached
// its worker; a run of a pipeline between two turns, of which a question or a pause ends by its time.
func (s *server) amid(ctx context.Context) (map[string]bool, error) {
	talks, err := ask[*messages.Conversations](ctx, s.house, &messages.ListConversations{})
	if err != nil {
		return nil, fmt.Errorf("look for open turns: %w", err)
	}
	runs, err := ask[*messages.Runs](ctx, s.house, &messages.ListRuns{})
	if err != nil {
		return nil, fmt.Errorf("look for runs of pipelines: %w", err)
	}
	amid := make(map[string]bool)
	for _, v := range talks.GetConversations() {
		if v.GetSpeaking() != "" || v.GetWaiting() > 0 {
			amid[v.GetSessionId()] = true
		}
	}
	for _, r := range runs.GetRuns() {
		if state := r.GetState(); state == pipeline.Running || state == pipeline.Waiting {
			amid[r.GetSessionId()] = true
		}
	}
	return amid, nil
}

func (s *server) wake(ctx context.Context, session string) error {
	_, err := ask[*messages.SessionView](ctx, s.house, &messages.ToSession{SessionId: session, Command: &messages.ToSession_Describe{Describe: &messages.DescribeSession{}}})
	return err
}

// recoverLate brings in those for which there was no room, in their order, while there is some.
func (s *server) recoverLate(ctx context.Context) {
	for len(s.late) > 0 {
		err := s.wake(ctx, s.late[0])
		if errors.Is(err, messages.ErrBusy) || ctx.Err() != nil {
			return
		}
		if err != nil {
			s.log.Warn("session does not go on", "session", s.late[0], "err", err)
		}
		s.late = s.late[1:]
	}
}

// open says whether something of a session waits for it to be in memory.
func open(v *messages.SessionView) bool {
	for _, w := range v.GetWorkers() {
		if w.GetState() == "waiting" && !w.GetQuarantined() {
			return true
		}
	}
	return false
}

// drainPoll is how often a server that stops looks at its turns.
const drainPoll = 100 * time.Millisecond

// drain lets turns end for a while. Nothing new is begun.
func (s *server) drain(ctx context.Context) {
	s.state.Store(stateStopping)
	s.notify("STOPPING=1")
	grace := s.loaded.Config.Server.Grace
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	tick := time.NewTicker(drainPoll)
	defer tick.Stop()
	for told := false; ; {
		n := s.busy(ctx)
		if n == 0 || grace <= 0 {
			return
		}
		if !told {
			told = true
			s.a.note("troupe: stopping; %d turns have %s to end; a second signal ends the process at once", n, grace)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			s.a.note("troupe: what is open goes on at the next start")
			return
		}
	}
}

// busy counts the workers that are at work. Those that wait for a person, a lease or a place are not.
func (s *server) busy(ctx context.Context) int {
	t, err := ask[*messages.Tree](ctx, s.house, &messages.DescribeTree{Deep: true})
	if err != nil {
		return 0
	}
	return working(t.GetRoot())
}

func working(v *messages.ActorView) int {
	n := 0
	if v.GetKind() == "worker" {
		switch v.GetState() {
		case "working", "requesting", "receiving", "using_tool":
			n++
		}
	}
	for _, c := range v.GetChildren() {
		n += working(c)
	}
	return n
}

// profiles are those of net/http/pprof, for this machine alone: a page of another name that leads here gets nothing.
func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return gateway.OnLoopback(bounded(mux))
}

// maxProfile is the longest profile that is taken.
const maxProfile = 5 * time.Minute

// bounded refuses profiles that take too long, and drops who does not read them.
func bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if text := r.FormValue("seconds"); text != "" {
			if n, err := strconv.ParseFloat(text, 64); err != nil || !(n > 0 && n <= maxProfile.Seconds()) {
				http.Error(w, fmt.Sprintf("seconds must be more than 0 and at most %.0f", maxProfile.Seconds()), http.StatusBadRequest)
				return
			}
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(2 * maxProfile)) // else it is not bounded
		next.ServeHTTP(w, r)
	})
}
