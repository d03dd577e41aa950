package badger

import (
	"errors"
	"fmt"

	engine "github.com/dgraph-io/badger/v4"
)

// A damaged block may have held what the store knows of itself. The count of openings is above that of every record, and goes up by a leap where it
// may be lost, so that no epoch comes up again. The count of commits is the watermark's when the store was closed in order, as then no log holds
// what it could miss. The store's name is made anew: backups go on from a whole one. Which blocks were left out before is told by nothing else.

// holding says whether a hole may have held a key, or what replaced the one that is there.
func (m *missing) holding(txn *engine.Txn, key string) (bool, error) {
	if m == nil {
		return false, nil
	}
	version := uint64(0)
	item, err := txn.Get([]byte(key))
	switch {
	case err == nil:
		version = item.Version()
	case !errors.Is(err, engine.ErrKeyNotFound):
		return false, fmt.Errorf("look for %s: %w", key, err)
	}
	for _, h := range m.holes {
		p := gap{From: h.from, To: h.to, Filter: h.filter, Top: h.top}
		if p.To == nil {
			p.To = []byte{behindAll}
		}
		if p.mayHold([]byte(key), version) {
			return true, nil
		}
	}
	return false, nil
}

// heldCommits is how many the database holds: where their count may be lost, those that were acknowledged, if nothing but the damage can have taken any.
func (s *Store) heldCommits(acked uint64) (have uint64, err error) {
	err = s.db.View(func(txn *engine.Txn) error {
		if have, err = countIn(txn, metaCommits); err != nil {
			return fmt.Errorf("read the count of commits: %w", err)
		}
		lost, err := s.missing.holding(txn, metaCommits)
		if lost && s.missing.quiet {
			have = max(have, acked)
		}
		return err
	})
	return have, err
}

// checkMeta refuses a store of which it is not certain what was left out before, and finds the least number of this opening.
func (s *Store) checkMeta(txn *engine.Txn, boot uint64) error {
	if lost, err := s.missing.holding(txn, metaGaps); err != nil || lost {
		return s.missing.err
	}
	lost, err := s.missing.holding(txn, metaBoot)
	if lost {
		s.floor = boot + bootLeap
	}
	return err
}
