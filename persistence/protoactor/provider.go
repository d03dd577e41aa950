// Package protoactor offers a store as protoactor's own persistence provider, so that actors
// written on its persistence plugin keep their events and snapshots beside everything else.
//
// The plugin's contract has no error, no context, no batch and no epoch. An activation of an
// actor is therefore claimed when it recovers, and whatever the store refuses becomes a panic,
// which is what reaches the actor's supervisor: a restarted actor recovers from what is durable.
// Actors of troupe itself use persistence.Journal instead.
package protoactor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	plugin "github.com/asynkron/protoactor-go/persistence"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// Options of a provider. The zero value works.
type Options struct {
	// Prefix begins the name of every actor's stream. "": "act/".
	Prefix string
	// SnapshotInterval is how many events pass between two requests for a snapshot. The plugin
	// divides by it. Below 1: 100.
	SnapshotInterval int
	// Timeout bounds every call to the store. 0: 30 s.
	Timeout time.Duration
	// Now stamps the events. nil: time.Now.
	Now persistence.Clock
}

// Provider makes the states that the plugin asks for, one per activation of an actor.
type Provider struct {
	store persistence.Store
	opts  Options
}

var (
	_ plugin.Provider      = (*Provider)(nil)
	_ plugin.ProviderState = (*State)(nil)
)

// New makes a provider on a store, which stays its owner's to close.
func New(store persistence.Store, o Options) *Provider {
	if o.Prefix == "" {
		o.Prefix = "act/"
	}
	if o.SnapshotInterval < 1 {
		o.SnapshotInterval = 100
	}
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Provider{store: store, opts: o}
}

// GetState returns a state that has claimed nothing yet.
func (p *Provider) GetState() plugin.ProviderState {
	return &State{store: p.store, opts: p.opts, leases: make(map[string]persistence.Lease)}
}

// State belongs to one activation and, like it, to one goroutine at a time.
type State struct {
	store  persistence.Store
	opts   Options
	leases map[string]persistence.Lease // by actor name
}

// Failure is what the methods panic with: the plugin gives them no other way to fail.
type Failure struct {
	Actor string
	Err   error
}

// Error says for which actor the store failed, and why.
func (f *Failure) Error() string { return fmt.Sprintf("persistence of actor %s: %v", f.Actor, f.Err) }

// Unwrap is the store's error.
func (f *Failure) Unwrap() error { return f.Err }

// must turns an error into a panic for the actor's supervisor.
func (s *State) must(actor, doing string, err error) {
	if err != nil {
		panic(&Failure{Actor: actor, Err: fmt.Errorf("%s: %w", doing, err)}) //nolint:forbidigo // the plugin's methods return no error: a panic is how its supervisor hears of one
	}
}

func (s *State) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), s.opts.Timeout)
}

// Restart begins a recovery: what follows is written under new leases, which fence whatever of
// the activation before is still running.
func (s *State) Restart() { clear(s.leases) }

// GetSnapshotInterval is the number of events between two requests for a snapshot.
func (s *State) GetSnapshotInterval() int { return s.opts.SnapshotInterval }

// lease claims an actor's stream once per recovery.
func (s *State) lease(ctx context.Context, actor string) persistence.Lease {
	l, held := s.leases[actor]
	if !held {
		var err error
		l, err = s.store.Claim(ctx, s.opts.Prefix+actor, actor)
		s.must(actor, "claim", err)
		s.leases[actor] = l
	}
	return l
}

// GetSnapshot returns the newest snapshot and the index of the first event that is not in it.
func (s *State) GetSnapshot(actor string) (snapshot any, eventIndex int, ok bool) {
	ctx, cancel := s.bounded()
	defer cancel()
	l := s.lease(ctx, actor)
	snap, err := s.store.Snapshot(ctx, l.Stream, 0)
	if errors.Is(err, persistence.ErrNotFound) {
		return nil, 0, false
	}
	s.must(actor, "read snapshot", err)
	m, err := decode(snap.State)
	s.must(actor, fmt.Sprintf("decode snapshot at %d", snap.Seq), err)
	return m, int(snap.Seq), true
}

// PersistSnapshot keeps a snapshot: the state before the event of that index.
func (s *State) PersistSnapshot(actor string, snapshotIndex int, snapshot proto.Message) {
	ctx, cancel := s.bounded()
	defer cancel()
	l := s.lease(ctx, actor)
	state, err := encode(snapshot)
	s.must(actor, "encode snapshot", err)
	if snapshotIndex < 0 {
		s.must(actor, "keep snapshot", fmt.Errorf("index %d: %w", snapshotIndex, persistence.ErrInvalid))
	}
	err = s.store.PutSnapshot(ctx, l, &messages.Snapshot{Stream: l.Stream, Seq: uint64(snapshotIndex), State: state})
	s.must(actor, "keep snapshot", err)
}

// DeleteSnapshots does nothing: the store keeps the two newest by itself.
func (s *State) DeleteSnapshots(string, int) {}

// GetEvents calls back for the events from a start index to before an end index; end 0 stands
// for all.
func (s *State) GetEvents(actor string, eventIndexStart int, eventIndexEnd int, callback func(e any)) {
	ctx, cancel := s.bounded()
	defer cancel()
	l := s.lease(ctx, actor)
	enough := errors.New("enough")
	err := s.store.Read(ctx, l.Stream, uint64(max(eventIndexStart, 0))+1, func(e persistence.Entry) error {
		if eventIndexEnd > 0 && e.Record.Seq > uint64(eventIndexEnd) {
			return enough
		}
		m, err := decode(e.Record.Body)
		if err != nil {
			return fmt.Errorf("decode event %d: %w", e.Record.Seq-1, err)
		}
		callback(m)
		return nil
	})
	if !errors.Is(err, enough) {
		s.must(actor, "read events", err)
	}
}

// PersistEvent makes an event durable before it returns. An index that is not the next one means
// that another activation has written: the store refuses and the actor panics.
func (s *State) PersistEvent(actor string, eventIndex int, event proto.Message) {
	ctx, cancel := s.bounded()
	defer cancel()
	l := s.lease(ctx, actor)
	body, err := encode(event)
	s.must(actor, "encode event", err)
	id := make([]byte, 16)
	_, _ = rand.Read(id) // crypto/rand ends the process rather than fail
	_, err = s.store.Append(ctx, persistence.Batch{
		Lease: l, Expect: uint64(eventIndex) + 1,
		Records: []*messages.Record{{RecordId: id, AtUnixMs: s.opts.Now().UnixMilli(), Body: body}},
	})
	s.must(actor, fmt.Sprintf("keep event %d", eventIndex), err)
}

// DeleteEvents does nothing: events are facts and stay.
func (s *State) DeleteEvents(string, int) {}

// encode keeps a message with its type's name, so that it can be decoded without asking the actor.
func encode(m proto.Message) ([]byte, error) {
	packed, err := anypb.New(m)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(packed)
}

func decode(b []byte) (proto.Message, error) {
	packed := &anypb.Any{}
	if err := proto.Unmarshal(b, packed); err != nil {
		return nil, fmt.Errorf("%w: %w", persistence.ErrCorrupt, err)
	}
	return packed.UnmarshalNew()
}
