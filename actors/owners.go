package actors

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/troupe-dev/troupe/messages"
)

// Workspaces of other machines are worked in by their owners: a call there is decided on, leased and written down here as any other, and
// handed to whoever is connected as the owner of its workspace. This is the joint that a protocol plugs into (ADR 47).

// Owner is a connection to the machine that owns a workspace. It is safe for concurrent use. It is an alias of a nameless type, so that
// packages that do not know each other mean the same by it.
type Owner = interface {
	// Deliver hands a call over and returns what became of it. The owner notes the attempts of calls in a ledger of its own: one that it
	// has ended it answers from there, one that still runs it goes on waiting for, one that it began and lost it calls
	// INTERRUPTED_UNKNOWN, and only one that it has never seen it runs. progress may be told how far it is. Deliver fails when the connection is lost, or ctx ends: the call may
	// run then, and is delivered again to the next connection.
	Deliver(ctx context.Context, call *messages.Execute, progress func(*messages.Progress)) (*messages.ToolReply, error)
	// Cancel asks for the end of a call; its result still comes by Deliver.
	Cancel(execID string)
	// Settle says that the result of an attempt is kept here for good: the owner's ledger may forget it.
	Settle(execID string, attempt uint32)
}

// Place is a workspace of another machine in a session: who owns it for one session has nothing to say in others.
type Place struct{ Session, URI string }

// Owners are the owners that are connected, one for each place. Whatever a connection says that is not that of the place any more is not
// heard.
type Owners struct {
	mu    sync.Mutex
	epoch uint64
	seats map[Place]*seat
	told  map[Place][]settlement // what was settled last, the oldest first
}

// settlement is an attempt whose result is kept.
type settlement struct {
	exec    string
	attempt uint32
}

// maxTold is how many attempts that were settled the next connection of a place is told of again. An owner runs so many at a time.
const maxTold = 64

// seat is the place of an owner. It is never changed, but replaced.
type seat struct {
	owner   Owner // nil: nobody is connected
	client  string
	epoch   uint64             // where nobody is connected: of who was last
	gone    bool               // the owner has said that it does not come back
	lost    context.CancelFunc // ends what waits for this connection
	ctx     context.Context    //nolint:containedctx // as long as the connection
	changed chan struct{}      // closed when the seat is replaced
}

// Connect makes an owner that of a place. The epoch grows with each connection. leave ends it: for good when it says so, else it may come back. A place
// that another program has is refused unless it is to be stolen; a program replaces its own connections. What was settled last is said
// again: it may have been lost with the connection before, or said to nobody, and would stay in the owner's ledger.
func (o *Owners) Connect(p Place, owner Owner, client string, steal bool) (epoch uint64, leave func(forGood bool), fail *messages.Failure) {
	epoch, leave, told, fail, robbed := o.connect(p, owner, client, steal)
	if robbed != nil {
		robbed.Taken(p.Session, p.URI)
	}
	for _, t := range told {
		owner.Settle(t.exec, t.attempt)
	}
	return epoch, leave, fail
}

// Robbed is an Owner that is told when another program has taken its place: no call comes to it any more.
type Robbed = interface{ Taken(session, uri string) }

func (o *Owners) connect(p Place, owner Owner, client string, steal bool) (epoch uint64, leave func(forGood bool), told []settlement, fail *messages.Failure, robbed Robbed) {
	o.mu.Lock()
	defer o.mu.Unlock()
	has := o.seats[p]
	taken := has != nil && has.owner != nil && (client == "" || has.client != client)
	if taken && !steal {
		return 0, nil, nil, messages.Fail(messages.CodeConflict, fmt.Sprintf("workspace %s of session %s has a connected owner already", p.URI, p.Session), "end that one, or steal its place"), nil
	}
	if taken {
		robbed, _ = has.owner.(Robbed)
		if again, _ := owner.(Robbed); again == robbed { // it asks once more
			robbed = nil
		}
	}
	o.epoch++
	s := &seat{owner: owner, client: client, epoch: o.epoch}
	s.ctx, s.lost = context.WithCancel(context.Background())
	o.put(p, s)
	return s.epoch, func(forGood bool) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.seats[p] == s { // else somebody has taken the place already
			o.put(p, &seat{gone: forGood, epoch: s.epoch})
			if forGood {
				delete(o.told, p) // a ledger that comes later is another one
			}
		}
	}, slices.Clone(o.told[p]), nil, robbed
}

// put replaces a seat. The lock is held.
func (o *Owners) put(p Place, s *seat) {
	if o.seats == nil {
		o.seats = make(map[Place]*seat)
	}
	s.changed = make(chan struct{})
	old := o.seats[p]
	o.seats[p] = s
	if old != nil {
		close(old.changed)
		if old.lost != nil {
			old.lost()
		}
	}
}

// at gives the seat of a place as it is now; there always is one.
func (o *Owners) at(p Place) *seat {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.seats[p] == nil {
		o.put(p, &seat{})
	}
	return o.seats[p]
}

// hears says whether a result counts that came by a connection: it has the place, or has left it for good just now: who leaves says first how its calls ended.
func (o *Owners) hears(p Place, s *seat) bool {
	now := o.at(p)
	return now == s || now.owner == nil && now.gone && now.epoch == s.epoch
}

// Connected says whether the owner of a place is there.
func (o *Owners) Connected(p Place) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.seats[p]
	return s != nil && s.owner != nil
}

// settle tells who owns a place that a result is kept, and the next one that does, as long as it may come back. Nobody else needs to hear it.
func (o *Owners) settle(p Place, execID string, attempt uint32) {
	o.mu.Lock()
	s := o.seats[p]
	if s != nil && !s.gone {
		if o.told == nil {
			o.told = make(map[Place][]settlement)
		}
		all := append(o.told[p], settlement{execID, attempt})
		o.told[p] = all[max(0, len(all)-maxTold):]
	}
	o.mu.Unlock()
	if s != nil && s.owner != nil {
		s.owner.Settle(execID, attempt)
	}
}
