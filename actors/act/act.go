// Package act is what every actor of the house needs around protoactor-go: asking with a
// context, goroutines that cannot kill the process and pipe their result back, a first-in first-out
// stash, timers that know their generation, back-off, and a guard against panics.
package act

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/messages"
)

// NewSystem starts an actor system that logs to the given logger. One per process: its making costs
// 23 ms and 2.8 MiB (house rule 1), of which little is kept.
func NewSystem(log *slog.Logger, opts ...actor.ConfigOption) *actor.ActorSystem {
	opts = append([]actor.ConfigOption{
		actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return log }),
		actor.WithDeadLetterRequestLogging(false),
	}, opts...)
	sys := actor.NewActorSystem(opts...)
	gather(sys.ProcessRegistry.LocalPIDs)
	return sys
}

// tables hold the names of all actors, in 32 maps each.
const tables = 8

// gather leaves a new system some of the 1,024 tables that protoactor-go makes for the names of its actors: every map that
// was ever used keeps room for eight of them, which is 9 MiB where each ask, too, has a name for a while.
func gather(names *actor.SliceMap) {
	there := make(map[string]any)
	for _, table := range names.LocalPIDs {
		table.IterCb(func(name string, process any) { there[name] = process })
	}
	kept := slices.Clone(names.LocalPIDs[:tables])
	for name := range there {
		names.GetBucket(name).Remove(name)
	}
	names.LocalPIDs = kept
	for name, process := range there {
		names.GetBucket(name).Set(name, process)
	}
}

// ErrGone says that the asked actor does not exist, or stopped without an answer.
var ErrGone = errors.New("actor is gone")

// Ask sends msg and waits for the one reply. A *messages.Failure comes back as an error, and so
// does a reply of another type. It must not be called from an actor's mailbox.
func Ask[T any](ctx context.Context, sys *actor.ActorSystem, to *actor.PID, msg any) (T, error) {
	if err := ctx.Err(); err != nil {
		var zero T
		return zero, fmt.Errorf("ask for %T: %w", zero, err)
	}
	return answerOf[T](put(sys, to, msg).wait(ctx))
}

// Asked is Ask in two steps: the question is sent, and wait, which is to be called once, waits for the answer.
func Asked[T any](sys *actor.ActorSystem, to *actor.PID, msg any) (wait func(context.Context) (T, error)) {
	p := put(sys, to, msg)
	return func(ctx context.Context) (T, error) { return answerOf[T](p.wait(ctx)) }
}

// put sends a question from an address of its own, until it is waited for.
func put(sys *actor.ActorSystem, to *actor.PID, msg any) *promise {
	p := &promise{sys: sys, reply: make(chan any, 1)}
	p.pid.Address, p.pid.Id = sys.Address(), sys.ProcessRegistry.NextID() // which nothing else is called
	sys.ProcessRegistry.LocalPIDs.GetBucket(p.pid.GetId()).Set(p.pid.GetId(), p)
	sys.Root.RequestWithCustomSender(to, msg, &p.pid)
	return p
}

// answerOf tells the answer that is wanted from a refusal.
func answerOf[T any](reply any, err error) (T, error) {
	var zero T
	if err != nil {
		return zero, fmt.Errorf("ask for %T: %w", zero, err)
	}
	if f, ok := reply.(*messages.Failure); ok {
		return zero, f
	}
	if r, ok := reply.(T); ok {
		return r, nil
	}
	return zero, fmt.Errorf("ask for %T: answered %T", zero, reply)
}

func (p *promise) wait(ctx context.Context) (any, error) {
	defer p.sys.ProcessRegistry.Remove(&p.pid)
	select {
	case r := <-p.reply:
		if _, dead := r.(*actor.DeadLetterResponse); dead {
			return nil, ErrGone
		}
		return r, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// AskSoon is Ask for a question that an actor answers at once, in whatever state it is. An ask that meets the very
// end of an actor is lost without a word: it is put again, and finds the successor, or nobody (ErrGone).
func AskSoon[T any](ctx context.Context, sys *actor.ActorSystem, to *actor.PID, msg any) (T, error) {
	for {
		try, cancel := context.WithTimeout(ctx, time.Second)
		r, err := Ask[T](try, sys, to, msg)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return r, err
		}
	}
}

// EndAsks answers with msg whoever still waits in Ask or reads an Inbox. It is for the end of a system, once
// its actors have stopped: what lay in their mailboxes then was dropped without a word (house rule 4).
func EndAsks(sys *actor.ActorSystem, msg any) {
	for _, bucket := range sys.ProcessRegistry.LocalPIDs.LocalPIDs {
		bucket.IterCb(func(_ string, p any) {
			switch p := p.(type) {
			case *promise:
				p.SendUserMessage(nil, msg)
			case *Inbox:
				p.SendUserMessage(nil, msg)
			}
		})
	}
}

// Await adds somebody to those who wait for an answer, without those who have stopped waiting: they are looked for when the
// list would grow, so that it holds at most twice as many as wait.
func Await(sys *actor.ActorSystem, waiting []*actor.PID, who *actor.PID) []*actor.PID {
	if len(waiting) == cap(waiting) {
		waiting = slices.DeleteFunc(waiting, func(pid *actor.PID) bool { return !Waits(sys, pid) })
		waiting = append(make([]*actor.PID, 0, 2*len(waiting)+1), waiting...)
	}
	return append(waiting, who)
}

// Waits says whether an answer would still get to somebody.
func Waits(sys *actor.ActorSystem, who *actor.PID) bool {
	if who == nil || who.GetAddress() != sys.Address() {
		return who != nil // nobody here can say
	}
	_, there := sys.ProcessRegistry.GetLocal(who.GetId())
	return there
}

// promise is the address of one awaited reply; later ones are dropped.
type promise struct {
	sys   *actor.ActorSystem
	pid   actor.PID
	reply chan any
}

func (p *promise) SendUserMessage(_ *actor.PID, message any) {
	select {
	case p.reply <- actor.UnwrapEnvelopeMessage(message):
	default:
	}
}
func (p *promise) SendSystemMessage(*actor.PID, any) {}
func (p *promise) Stop(*actor.PID)                   {}

// Panic is what a goroutine of ours, or a guarded handler, died of.
type Panic struct {
	Reason any
	Stack  string
}

func (p *Panic) Error() string { return fmt.Sprintf("panic: %v", p.Reason) }

// Pipe runs fn off the mailbox and sends what it returns to the actor; a panic becomes
// failed(*Panic). The pieces needed are copied before: fn must not touch a Context.
func Pipe(p *Pool, sys *actor.ActorSystem, to *actor.PID, failed func(*Panic) any, fn func() any) {
	p.Go(func() { Deliver(sys, to, failed, fn) })
}

// Deliver is Pipe for who is off the mailbox already.
func Deliver(sys *actor.ActorSystem, to *actor.PID, failed func(*Panic) any, fn func() any) {
	sys.Root.Send(to, run(failed, fn))
}

func run(failed func(*Panic) any, fn func() any) (msg any) {
	defer func() {
		if r := recover(); r != nil {
			msg = failed(&Panic{Reason: r, Stack: string(debug.Stack())})
		}
	}()
	return fn()
}

// Task is what one goroutine does for an actor: Run's result is sent to it, or what becomes of a panic.
type Task interface {
	Run() any
	Failed(p *Panic) any
}

// Run runs a task and returns what is to be sent.
func Run(t Task) (msg any) {
	defer func() {
		if r := recover(); r != nil {
			msg = t.Failed(&Panic{Reason: r, Stack: string(debug.Stack())})
		}
	}()
	return t.Run()
}

// Guard calls handle and returns what it panicked with, nil when it did not.
func Guard(handle func()) (p *Panic) {
	defer func() {
		if r := recover(); r != nil {
			p = &Panic{Reason: r, Stack: string(debug.Stack())}
		}
	}()
	handle()
	return nil
}

// Unexpected logs a message that an actor does not know, and answers who asked.
func Unexpected(c actor.Context, log *slog.Logger) {
	switch c.Message().(type) {
	case actor.SystemMessage, actor.AutoReceiveMessage, *actor.DeadLetterResponse, *actor.Stopped, *actor.Stopping, *actor.Restarting:
		return
	}
	log.Warn("unexpected message", "actor", c.Self().GetId(), "type", fmt.Sprintf("%T", c.Message()))
	if c.Sender() != nil {
		c.Respond(messages.Fail(messages.CodeBadRequest, fmt.Sprintf("%T is not understood here", c.Message()), ""))
	}
}
