package chaos

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strings"
	"sync"

	"github.com/troupe-dev/troupe/persistence"
)

// Mode says when the runtime is killed.
type Mode string

// The modes.
const (
	Random Mode = "random" // after a random number of appends, or in an effect, or in an answer of the model
	Every  Mode = "every"  // after every append of every turn, once
	Never  Mode = "never"  // for a calm run to compare with
)

// moment is where a kill lands, relative to an append or an effect.
type moment string

const (
	unheard  moment = "unheard"  // durable, and its writer never hears of it
	heard    moment = "heard"    // durable, and its writer was just told
	atBegin  moment = "begin"    // in an effect, before it happens
	atEffect moment = "effect"   // in an effect, after it happened
	atEnd    moment = "end"      // after an effect, before its result is written down
	spared   moment = "spared"   // not at all: else no call that may run once would ever end well
	inAnswer moment = "answer"   // while the model answers; the parent kills
	outside  moment = "parent"   // ditto, for the record
	orderly  moment = "orderly"  // no kill: the process was asked to end
	byItself moment = "byitself" // no kill: the process ended though nobody asked
)

// cutter decides when this life ends. It hears of every append and every effect.
type cutter struct {
	mode Mode
	seed uint64
	die  func(why string) // ends the process; in a process that must live on, it returns

	mu     sync.Mutex
	dead   bool
	track  *tracker
	used   map[string]bool // appends that were cut in earlier lives
	notes  *os.File        // where used is kept
	point  point           // of this life, in mode Random
	armed  map[string]Phase
	counts map[moment]int
}

// point is the moment at which a life of mode Random ends: at the n-th append, or the n-th effect.
type point struct {
	at moment
	n  int
}

// newPoint draws the point of a life.
func newPoint(seed uint64, lane, life int) point {
	rng := rand.New(rand.NewPCG(seed^uint64(lane+1)<<32, uint64(life))) //nolint:gosec // a run must repeat, not be unpredictable
	at := []moment{unheard, heard, atBegin, atEffect, atEnd}[pick(rng, 5, 5, 2, 1, 2)]
	n := 1 + rng.IntN(14)
	if at == atBegin || at == atEffect || at == atEnd {
		n = 1 + rng.IntN(6)
	}
	return point{at, n}
}

// newCutter reads what earlier lives have cut, and how far the conversations are.
func newCutter(ctx context.Context, c lifeConfig, s persistence.Store, die func(string)) (*cutter, error) {
	k := &cutter{
		mode: c.Mode, seed: c.Seed, die: die, track: newTracker(), used: make(map[string]bool),
		point: newPoint(c.Seed, c.Lane, c.Life), armed: make(map[string]Phase), counts: make(map[moment]int),
	}
	if c.Mode != Every {
		return k, k.load(ctx, s)
	}
	b, err := os.ReadFile(c.Cuts)
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("read what was cut: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		k.used[strings.TrimSuffix(line, "\n")] = true
	}
	if k.notes, err = os.OpenFile(c.Cuts, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return nil, fmt.Errorf("keep what is cut: %w", err)
	}
	return k, k.load(ctx, s)
}

func (k *cutter) load(ctx context.Context, s persistence.Store) error {
	err := s.Streams(ctx, "wrk/", func(name string) error {
		return s.Read(ctx, name, 1, func(e persistence.Entry) error {
			k.track.replay(e)
			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("read how far the turns are: %w", err)
	}
	return nil
}

func (k *cutter) close() {
	if k.notes != nil {
		_ = k.notes.Close() // every line was written at once
	}
}

// end kills this life, once.
func (k *cutter) end(why string) {
	k.mu.Lock()
	first := !k.dead
	k.dead = true
	k.mu.Unlock()
	if first {
		k.die(why)
	}
}

func (k *cutter) ended() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.dead
}

// durable hears of an append that is on disk, and says where this life ends because of it.
func (k *cutter) durable(n appendName, all []persistence.Batch) moment {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, b := range all {
		for _, r := range b.Records {
			if what, err := decode(b.Lease.Stream, r); err == nil && what != nil {
				k.track.durable(what, r.GetSeq())
			}
		}
	}
	switch k.mode {
	case Random:
		k.counts[unheard]++
		if (k.point.at == unheard || k.point.at == heard) && k.counts[unheard] == k.point.n {
			return k.point.at
		}
	case Every:
		return k.cut(n)
	case Never:
	}
	return spared
}

// cut decides about one append of mode Every: each is cut once, and how is the seed's choice. An append that
// starts calls may be cut in the effect that it allows instead.
func (k *cutter) cut(n appendName) moment {
	if k.used[n.text] {
		return spared
	}
	k.used[n.text] = true
	if _, err := k.notes.WriteString(n.text + "\n"); err != nil {
		return unheard // and the next life will cut it again
	}
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d %s", k.seed, n.text) // into memory
	choice := []moment{unheard, heard}
	if len(n.starts) > 0 {
		choice = []moment{unheard, heard, atBegin, atEffect, atEnd, spared, spared}
	}
	at := choice[h.Sum64()%uint64(len(choice))]
	phases := map[moment]Phase{atBegin: Begun, atEffect: Happened, atEnd: Ended}
	if p, later := phases[at]; later {
		k.armed[n.starts[0]] = p
		return spared
	}
	return at
}

// effect hears of each phase of an effect.
func (k *cutter) effect(exec string, p Phase) {
	k.mu.Lock()
	at := map[Phase]moment{Begun: atBegin, Happened: atEffect, Ended: atEnd}[p]
	k.counts[at]++
	hit := k.armed[exec] == p || k.mode == Random && k.point.at == at && k.counts[at] == k.point.n
	k.mu.Unlock()
	if hit {
		k.end(string(at))
	}
}

// dispatch is the seq of the durable dispatch of a call, 0 when there is none.
func (k *cutter) dispatch(exec string) uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.track.seqs[exec]
}

// cutStore is a store whose appends the cutter hears of. After the end of a life that lives on in the same
// process, nothing reaches the store any more, as after a crash.
type cutStore struct {
	persistence.Store
	k *cutter
}

// Release implements persistence.Releaser.
func (s *cutStore) Release(l persistence.Lease) {
	if r, ok := s.Store.(persistence.Releaser); ok {
		r.Release(l)
	}
}

// Enqueue lets an append through, and ends the life before or after its writer hears of it.
func (s *cutStore) Enqueue(done func(persistence.Receipt, error), b ...persistence.Batch) {
	s.k.mu.Lock()
	if s.k.dead {
		s.k.mu.Unlock()
		return
	}
	name := s.k.track.batch(b)
	s.k.mu.Unlock()
	s.Store.Enqueue(func(r persistence.Receipt, err error) {
		if err != nil {
			done(r, err)
			return
		}
		at := s.k.durable(name, b)
		if at == unheard {
			s.k.end(string(at) + " " + name.text)
		}
		if s.k.ended() {
			return // it died before the answer came
		}
		done(r, err)
		if at == heard {
			s.k.end(string(at) + " " + name.text)
		}
	}, b...)
}

// Append is Enqueue, waited for.
func (s *cutStore) Append(ctx context.Context, b ...persistence.Batch) (persistence.Receipt, error) {
	type answer struct {
		r   persistence.Receipt
		err error
	}
	answered := make(chan answer, 1)
	s.Enqueue(func(r persistence.Receipt, err error) { answered <- answer{r, err} }, b...)
	select {
	case a := <-answered:
		return a.r, a.err
	case <-ctx.Done():
		return persistence.Receipt{}, fmt.Errorf("append: %w: %w", persistence.ErrAmbiguous, ctx.Err())
	}
}
