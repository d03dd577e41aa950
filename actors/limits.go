package actors

import (
	"fmt"
	"time"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
)

// Limits bound turns and calls. Zero values mean the defaults; of those that say so, a negative one means
// that there is no limit.
type Limits struct {
	Steps          int           // generations of one turn; default 100; may be none
	Wall           time.Duration // of one turn; default 1 h; may be none
	Repeats        int           // identical calls in a row, with identical results, before a turn is stuck; default none
	Sessions       int           // in memory at a time; one more waits for one that rests to leave, or is refused as busy; default none
	Workers        int           // of one session; default none
	Queue          int           // inputs that wait for one worker, and turns that wait in one shared conversation; default none, and 1000 turns
	Children       int           // that one worker may have delegated to at the same time; default 4; a negative one: agents may not delegate
	Handoffs       int           // of one turn from agent to agent; default 8; a negative one: none
	Sends          int           // messages that one turn sends to other workers; default 8; a negative one: none
	Unasked        int           // messages taken, and tasks delegated in the background, without anybody else's word between; default 32; a negative one: none
	Outbox         int           // messages of one worker that are not known to have arrived; default 32; a negative one: none
	Spoken         int           // turns of one shared conversation, words from outside and those that were cut off or taken back among them; default none
	Jobs           int           // that one worker may have running; default 16; may be none
	Grace          time.Duration // that a call which was cancelled, or is out of time, has to end; default 5 s
	Owner          time.Duration // that a call waits for its workspace's owner whose connection was lost; default 1 min; a negative one: not at all
	Hold           time.Duration // that a turn which waits for an approval keeps its workspaces; default 1 min; a negative one gives them back at once
	Approval       time.Duration // that an approval waits for its answer; default: for ever
	Provider       time.Duration // that a variable's provider may take; default 10 s
	ModelCalls     int           // in flight per provider; default 64
	ModelAttempts  int           // of one step; as many requests that nothing comes of count as one as the model sends of one call (model.Attempts); default 3
	SubscriberWait int           // events kept for a slow watcher; default 4096
	CompactAt      int           // percent of a model's window: a history that would take a request there is compacted before; default 80
	CompactKeep    int           // percent of the window that the newest turns may fill and stay as they were; default 30
}

func (l Limits) withDefaults() Limits {
	set := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	set(&l.Steps, 100)
	set(&l.ModelCalls, 64)
	set(&l.Jobs, 16)
	set(&l.Children, 4)
	set(&l.Handoffs, 8)
	set(&l.Sends, 8)
	set(&l.Unasked, 32)
	set(&l.Outbox, 32)
	set(&l.ModelAttempts, 3)
	set(&l.SubscriberWait, 4096)
	set(&l.CompactAt, 80)
	set(&l.CompactKeep, 30)
	if l.Wall == 0 {
		l.Wall = time.Hour
	}
	if l.Provider <= 0 {
		l.Provider = 10 * time.Second
	}
	if l.Hold == 0 {
		l.Hold = time.Minute
	}
	if l.Grace == 0 {
		l.Grace = 5 * time.Second
	}
	return l
}

// AgentLimits are tighter bounds for one agent; 0 means the common ones.
type AgentLimits struct {
	Steps   int
	Wall    time.Duration
	Repeats int
	// Children may be fewer than the common ones, and never more.
	Children int
}

// ProviderLimits is what one provider allows, over all sessions. 0 is no limit of its own.
type ProviderLimits struct {
	Calls    int   // in flight; 0: Limits.ModelCalls
	Requests int64 // begun in any minute
	Tokens   int64 // input and output in any minute; those of calls in flight are not known yet
}

// tighter gives the smaller bound; what is not positive bounds nothing.
func tighter[N int | time.Duration](common, own N) N {
	if own <= 0 || common > 0 && common < own {
		return max(common, 0)
	}
	return own
}

// limits are those of the worker's turns.
func (w *Worker) limits() conversation.Limits {
	lim := conversation.Limits{Steps: w.svc.Limits.Steps, Repeats: w.svc.Limits.Repeats}
	if len(w.state.Staged()) > 0 { // else none joins
		lim.Fits = w.roomToJoin
	}
	for _, r := range w.roles() {
		agent, _ := w.svc.agent(r.agent)
		lim.Steps, lim.Repeats = tighter(lim.Steps, agent.Limits.Steps), tighter(lim.Repeats, agent.Limits.Repeats)
	}
	return lim
}

// childLimit is how many agents the worker may have delegated to at the same time; below 1: none.
func (w *Worker) childLimit() int {
	limit := w.svc.Limits.Children
	for _, r := range w.roles() {
		if agent, _ := w.svc.agent(r.agent); limit > 0 {
			limit = tighter(limit, agent.Limits.Children)
		}
	}
	return limit
}

// wallLimit is how long a turn may take; 0 for ever.
func (w *Worker) wallLimit() time.Duration {
	limit := w.svc.Limits.Wall
	for _, r := range w.roles() {
		agent, _ := w.svc.agent(r.agent)
		limit = tighter(limit, agent.Limits.Wall)
	}
	return limit
}

// full refuses an input when too many wait already.
func (w *Worker) full() *messages.Failure {
	if most := w.svc.Limits.Queue; most > 0 && len(w.state.Staged()) >= most {
		return messages.Busy(fmt.Sprintf("%d inputs wait already", most), "wait until some are done, or raise limits.queue", tryAgain)
	}
	return nil
}
