package badger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	engine "github.com/dgraph-io/badger/v4"

	"github.com/troupe-dev/troupe/persistence"
)

// Secondary entries (listings, idempotency keys, timers, snapshots, marks) are told by nothing else in the database. Those that a
// damaged block may have held are known by its table's filter of keys. None of them is believed, whether it is there, as what was lost may be its removal or what replaced
// it, or not:
//
//   - A listing is refused to those who read it, until who knows the journals has made it again (Relisted). What no journal tells stays refused.
//   - An idempotency key is neither given out nor taken: nobody knows whether it was used.
//   - A snapshot is passed over: its reader takes the one before, or folds the whole stream.
//   - A timer that is there is given out, as its owner says whether it counts. One that is not is missing until its owner sets it again (Relisted).
//   - A mark of where a trimmed stream begins, when it is lost, leaves a stream without its beginning, which is refused to those who read from there.

// secondary says whether a block may have held such entries, and whether it held nothing else.
func (p *gap) secondary() (some, only bool) {
	from, to := rank(p.From), rank(p.To)
	some = to >= rank([]byte{tagFirst})
	only = from >= rank([]byte{tagIndex}) && to <= rank([]byte{tagOnce}) || from >= rank([]byte{tagSnapshot})
	return some, only
}

// rank orders keys by their kinds.
func rank(key []byte) int { return int(key[0]) }

// behindAll is greater than any key of ours.
const behindAll = 0xff

// unsure returns the gap that may have held a secondary entry; version is that of what is there, 0 when nothing is.
func (g *gaps) unsure(key []byte, version uint64) *gap {
	if g == nil {
		return nil
	}
	for i := range g.Second {
		if p := &g.Second[i]; p.mayHold(key, version) {
			return p
		}
	}
	return nil
}

// unsureIn is unsure of what a transaction sees.
func (g *gaps) unsureIn(txn *engine.Txn, key []byte) (*gap, error) {
	if g == nil || len(g.Second) == 0 {
		return nil, nil //nolint:nilnil // nothing is lost
	}
	item, err := txn.Get(key)
	switch {
	case errors.Is(err, engine.ErrKeyNotFound):
		return g.unsure(key, 0), nil
	case err != nil:
		return nil, fmt.Errorf("look for %s: %w", named(key), err)
	}
	return g.unsure(key, item.Version()), nil
}

// refuseKey refuses an idempotency key of which nobody knows whether it was used.
func (g *gaps) refuseKey(txn *engine.Txn, name string) error {
	p, err := g.unsureIn(txn, textKey(nil, tagOnce, name))
	if err != nil || p == nil || g.Accepted {
		return err
	}
	return p.refusal(fmt.Sprintf("idempotency key %q may be lost", name))
}

// refuseIndex refuses a listing that may lack entries; nil: it is whole, or was made again.
func (g *gaps) refuseIndex(relisted []string, prefix string) error {
	if g == nil || g.Accepted {
		return nil
	}
	low, high := between(tagIndex, prefix)
	for _, made := range relisted {
		if strings.HasPrefix(prefix, made) {
			return nil
		}
		if prefix+"/" == made {
			low, high = between(tagIndex, made)
		}
	}
	for i := range g.Second {
		p := &g.Second[i]
		if !p.overlaps(low, high) {
			continue
		}
		from, to := slices.MaxFunc([][]byte{p.From, low}, bytes.Compare), slices.MinFunc([][]byte{p.To, high}, bytes.Compare)
		within := func(made string) bool {
			begin := textKey(nil, tagIndex, made)
			return bytes.HasPrefix(from, begin) && bytes.HasPrefix(to, begin)
		}
		if !slices.ContainsFunc(relisted, within) {
			return p.refusal(fmt.Sprintf("entries of the index below %q may be lost", prefix))
		}
	}
	return nil
}

// refuseTimers refuses the list of timers where some may be lost that nobody has set again.
func (g *gaps) refuseTimers(relisted []string) error {
	if g == nil || g.Accepted || len(relisted) > 0 {
		return nil
	}
	low, high := between(tagTimer, "")
	for i := range g.Second {
		if p := &g.Second[i]; p.overlaps(low, high) {
			return p.refusal("timers may be lost")
		}
	}
	return nil
}

// refuseNames refuses a list of streams when one of those may have lost all that names it: its records, and the cursors that lead to them.
func (g *gaps) refuseNames(prefix string) error {
	if g == nil {
		return nil
	}
	low, high := between(tagCursor, "")
	cursors := slices.ContainsFunc(g.Gaps, func(p gap) bool { return p.overlaps(low, high) })
	low, high = between(tagCommit, prefix)
	if i := slices.IndexFunc(g.Gaps, func(p gap) bool { return p.overlaps(low, high) }); cursors && i >= 0 {
		return g.Gaps[i].refusal(fmt.Sprintf("streams of %q may be lost", prefix))
	}
	return nil
}

// between are what the keys of a kind lie between that begin with a text.
func between(tag byte, prefix string) (low, high []byte) {
	low = textKey(nil, tag, prefix)
	return low, append(bytes.Clone(low), behindAll)
}

// made are the parts of the index that were made again since entries of them were lost.
func (s *Store) made() []string {
	if p := s.relisted.Load(); p != nil {
		return *p
	}
	return nil
}

var _ persistence.Relister = (*Store)(nil)

// Lost says which secondary entries may be missing, or older than what was written last. nil: none.
func (s *Store) Lost() *persistence.Lost {
	if s.lost == nil || len(s.lost.Second) == 0 || len(s.made()) > 0 {
		return nil
	}
	told := func(tag byte) func(string) (bool, error) {
		return func(name string) (lost bool, err error) {
			err = s.view(context.Background(), func(txn *engine.Txn) error {
				p, err := s.lost.unsureIn(txn, textKey(nil, tag, name))
				lost = p != nil
				return err
			})
			return lost, err
		}
	}
	return &persistence.Lost{Index: told(tagIndex), Timer: told(tagTimer)}
}

// Relisted removes what is left of lost index entries below some prefixes, and believes the index there from now on.
func (s *Store) Relisted(ctx context.Context, prefixes ...string) error {
	if s.lost == nil {
		return nil
	}
	g := *s.lost
	g.Relisted = slices.Compact(slices.Sorted(slices.Values(prefixes)))
	e, err := g.entry()
	if err != nil {
		return err
	}
	err = s.purge(ctx, func(p *purger) error {
		for _, prefix := range prefixes {
			err := forward(p.txn, textKey(nil, tagIndex, prefix), nil, func(item *engine.Item) error {
				if g.unsure(item.Key(), item.Version()) == nil {
					return nil
				}
				return p.batch.Delete(item.KeyCopy(nil))
			})
			if err != nil {
				return err
			}
		}
		return p.batch.SetEntry(e)
	})
	if err != nil {
		return fmt.Errorf("believe the index again: %w", err)
	}
	s.relisted.Store(&g.Relisted)
	return nil
}
