package badger

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	engine "github.com/dgraph-io/badger/v4"

	"github.com/troupe-dev/troupe/persistence"
)

var _ persistence.Damaged = (*Store)(nil)

// Damage says which blocks the store was opened without, which streams are known to have lost records with them, and which may have. What was made again
// from the journals is whole, and none.
func (s *Store) Damage(ctx context.Context) (all []persistence.Finding, err error) {
	if s.lost == nil {
		return nil, nil
	}
	err = s.view(ctx, func(txn *engine.Txn) error {
		lost, err := s.lost.names(txn, "")
		for _, name := range lost {
			first := s.lost.lostFrom(name)
			all = append(all, persistence.Finding{Stream: name, Seq: first, Problem: fmt.Sprintf("lost records from seq %d on", first)})
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("say what is lost: %w", err)
	}
	for _, name := range s.lost.Doubt {
		if s.lost.lostFrom(name) == 0 {
			all = append(all, persistence.Finding{Stream: name, Problem: "may have lost records"})
		}
	}
	for i := range s.lost.Gaps {
		all = append(all, persistence.Finding{Problem: s.lost.Gaps[i].String()})
	}
	for i := range s.lost.Second {
		if p := &s.lost.Second[i]; !s.lost.Accepted && !covered(s.lost.Gaps, p) && !p.madeAgain(s.made()) {
			all = append(all, persistence.Finding{Problem: p.String()})
		}
	}
	return all, nil
}

// covered says whether a gap is one of those, too.
func covered(all []gap, p *gap) bool {
	for i := range all {
		if all[i].File == p.File && string(all[i].From) == string(p.From) {
			return true
		}
	}
	return false
}

// madeAgain says whether all that a gap may have held was made again: entries of the index below one of those prefixes, or timers, which are set again
// with them.
func (p *gap) madeAgain(relisted []string) bool {
	if len(relisted) > 0 && p.From[0] == tagTimer && p.To[0] == tagTimer {
		return true
	}
	return slices.ContainsFunc(relisted, func(made string) bool { return p.under(made) })
}

// under says whether a gap held nothing but entries of the index below a prefix.
func (p *gap) under(prefix string) bool {
	begin := textKey(nil, tagIndex, prefix)
	return bytes.HasPrefix(p.From, begin) && bytes.HasPrefix(p.To, begin)
}
