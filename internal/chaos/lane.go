package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

// lane is one runtime that dies and comes back, with the sessions that work in it.
type lane struct {
	n        int
	dir      string
	opts     Options
	host     host
	files    lifeConfig
	model    *endpoint
	sessions []*session

	mu       sync.Mutex
	current  life
	changed  chan struct{} // closed when current changes
	lives    int
	kills    int
	turned   func() // a turn is done
	done     int    // turns
	released int    // workers, from their quarantine
	crowded  int    // requests that were refused for want of room, and made again
	waiting  int    // messages in mailboxes after the last turn

	person  *person
	acks    []Ack
	results []Result
	answers []Answer
	left    []string // approvals that are listed after the last turn
	seen    []Seen
	refused []Refusal
}

// newLane makes the folders of a lane and deals it its turns.
func newLane(n int, o Options, h host, m *endpoint, turns []turn, turned func()) (*lane, error) {
	l := &lane{n: n, dir: filepath.Join(o.Dir, fmt.Sprint(n)), opts: o, host: h, model: m, changed: make(chan struct{}), turned: turned}
	l.person = newPerson(l)
	l.files = laneFiles(l.dir)
	l.files.Lane, l.files.Mode, l.files.Seed, l.files.Model, l.files.Room = n, o.Mode, o.Seed, m.URL, roomIn(n, o.Sessions)
	for i := range o.Sessions {
		s := &session{lane: l, n: i, id: fmt.Sprintf("%schaos_%d_%d", messages.SessionPrefix, n, i), asks: i%2 == 0}
		// The first two share a folder: their turns wait for each other.
		work, guarded := fmt.Sprintf("work-%d", max(i, 1)), fmt.Sprintf("guarded-%d", i)
		for _, w := range []struct {
			folder, name string
			trust        messages.Trust_Level
		}{{work, "work", messages.Trust_FULL}, {guarded, guardedName, messages.Trust_RESTRICTED}} {
			dir := filepath.Join(l.dir, w.folder)
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return nil, fmt.Errorf("make a workspace: %w", err)
			}
			addr, _, err := workspace.Local(dir)
			if err != nil {
				return nil, fmt.Errorf("make a workspace: %w", err)
			}
			s.spaces = append(s.spaces, &messages.WorkspaceSpec{Uri: addr.Canonical, Name: w.name, Trust: w.trust, Primary: w.name == "work"})
		}
		l.sessions = append(l.sessions, s)
	}
	for i, t := range turns {
		s := l.sessions[i%len(l.sessions)]
		s.turns = append(s.turns, t)
	}
	return l, nil
}

// run works through the turns, beginning the next life whenever one has ended.
func (l *lane) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	lived := make(chan error, 1)
	go func() {
		err := l.live(ctx)
		cancel(err)
		lived <- err
	}()
	answering, enough := context.WithCancel(ctx)
	defer enough()
	var there, working sync.WaitGroup
	there.Go(func() { l.person.run(answering) })
	for _, s := range l.sessions {
		working.Go(func() {
			if err := s.work(ctx); err != nil {
				cancel(err)
			}
		})
	}
	working.Wait()
	end := errDone
	for _, s := range l.sessions {
		if ctx.Err() == nil {
			end = cmp.Or(s.rest(ctx), end)
		}
	}
	enough()
	there.Wait()
	if ctx.Err() == nil {
		end = cmp.Or(l.person.settle(ctx), l.drain(ctx), end)
	}
	cancel(end)
	if err := <-lived; !errors.Is(err, errDone) {
		return err // the first one: it has ended all others
	}
	return nil
}

var errDone = errors.New("all turns are done")

// live begins one life after the other until ctx ends, then ends the last one in order.
func (l *lane) live(ctx context.Context) error {
	for {
		c := l.files
		c.Life = l.lives
		now, err := l.host.Begin(context.WithoutCancel(ctx), c)
		if err != nil {
			return fmt.Errorf("lane %d, life %d: %w", l.n, c.Life, err)
		}
		l.mu.Lock()
		l.lives++
		l.mu.Unlock()
		l.person.round(ctx, now, true)
		l.set(now)
		select {
		case <-now.Over():
		case <-ctx.Done():
		}
		l.set(nil)
		if err := l.bury(ctx, now); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// set says which life there is, nil while there is none.
func (l *lane) set(now life) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current = now
	close(l.changed)
	l.changed = make(chan struct{})
}

// closeTime bounds the orderly end of a life, and the removal of the remains of a killed one.
const closeTime = 30 * time.Second

func (l *lane) bury(ctx context.Context, dead life) error {
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	if err := dead.Close(bound); err != nil {
		return fmt.Errorf("lane %d: end a life: %w", l.n, err)
	}
	switch end := dead.End(); end.at {
	case orderly:
	case byItself:
		return fmt.Errorf("lane %d, life %d: %w", l.n, l.lives-1, end.err)
	default:
		l.mu.Lock()
		l.kills++
		l.mu.Unlock()
	}
	return nil
}

// alive waits for a life.
func (l *lane) alive(ctx context.Context) (life, error) {
	for {
		l.mu.Lock()
		now, changed := l.current, l.changed
		l.mu.Unlock()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if now != nil {
			select {
			case <-now.Over():
			default:
				return now, nil
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// turn counts a turn that has come to its end.
func (l *lane) turn() {
	l.mu.Lock()
	l.done++
	l.mu.Unlock()
	l.turned()
}

// kill ends the life that there is.
func (l *lane) kill() {
	l.mu.Lock()
	now := l.current
	l.mu.Unlock()
	if now != nil {
		now.Kill()
	}
}

// ask puts a question to whatever life there is, again after each kill, until it is answered or refused.
func (l *lane) ask(ctx context.Context, m proto.Message) (proto.Message, error) {
	first := l.lived()
	var last life
	var since time.Time
	for {
		now, err := l.alive(ctx)
		if err != nil {
			return nil, err
		}
		if now != last {
			last, since = now, time.Now()
		}
		if n := l.lived() - first; n > maxLives || time.Since(since) > l.opts.Patience {
			return nil, fmt.Errorf("%T is not answered in %d lives, the last of which is %s old", m, n+1, time.Since(since).Round(time.Second))
		}
		reply, err := l.askOnce(ctx, now, now, m)
		var refused *messages.Failure
		switch {
		case err == nil:
			return reply, nil
		case errors.As(err, &refused) && refused.GetCode() == messages.CodeQuarantined:
			if err := l.release(ctx, m); err != nil {
				return nil, err
			}
			continue
		case errors.As(err, &refused) && full(refused):
			l.mu.Lock()
			l.crowded++
			l.mu.Unlock()
		case errors.As(err, &refused) && refused.GetCode() != messages.CodeUnavailable:
			return nil, refused
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.Is(err, errStuck):
			return nil, fmt.Errorf("%T: %w of %s", m, err, l.opts.Patience)
		}
		pause(ctx, now, askPause) // most often the process is just dying
	}
}

// full says whether a refusal is one for want of room, which passes.
func full(f *messages.Failure) bool {
	return f.GetCode() == messages.CodeBusy && f.GetRetryAfterMs() > 0
}

// release lets a worker go on that was killed so often without getting anywhere that it is quarantined: that is
// what a person would do.
func (l *lane) release(ctx context.Context, m proto.Message) error {
	to, ok := m.(*messages.ToSession)
	if !ok {
		return errors.New("a command to no session was refused because of a quarantine")
	}
	for _, s := range l.sessions {
		if s.id != to.GetSessionId() {
			continue
		}
		now, err := l.alive(ctx)
		if err != nil {
			return err
		}
		_, err = l.askOnce(ctx, now, now, address(s.id, &messages.ReleaseWorker{WorkerId: s.worker, By: "chaos"}))
		var refused *messages.Failure
		if errors.As(err, &refused) && refused.GetCode() != messages.CodeUnavailable {
			return fmt.Errorf("release worker %s: %w", s.worker, refused)
		}
		l.mu.Lock()
		l.released++
		l.mu.Unlock()
		return nil // what a kill has cut off is said again with the next refusal
	}
	return nil
}

// ack keeps an acknowledgement.
func (l *lane) ack(a Ack) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acks = append(l.acks, a)
}

// askPause is how long an answer that never came is not asked for again, unless the life has ended.
const askPause = 100 * time.Millisecond

// askOnce asks a life, over one of the connections to it.
func (l *lane) askOnce(ctx context.Context, now life, by node, m proto.Message) (proto.Message, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		bound := time.NewTimer(l.opts.Patience)
		defer bound.Stop()
		select {
		case <-now.Over():
			cancel(errDied)
		case <-bound.C:
			cancel(errStuck)
		case <-ctx.Done():
		}
	}()
	reply, err := by.Ask(ctx, m)
	if err != nil && errors.Is(context.Cause(ctx), errStuck) {
		return nil, errStuck
	}
	if f, refused := reply.(*messages.Failure); refused && err == nil {
		return nil, f
	}
	return reply, err
}

var (
	errDied  = errors.New("the runtime was killed")
	errStuck = errors.New("a life neither ended nor answered within the patience")
)

// maxLives is how often a runtime may be killed over one request. Random kills may hit the same turn again and
// again; those after every append come to an end.
const maxLives = 2000

func (l *lane) lived() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lives
}
