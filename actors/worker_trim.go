package actors

import (
	"context"
	"errors"
	"fmt"

	"github.com/troupe-dev/troupe/persistence"
)

// trimBehind removes what a compaction has left behind, when it is old enough: everything before the oldest record that
// either of the two kept snapshots needs. needs is that of the newest, which was just written; without one before
// it nothing goes, so that there are always two beginnings to fall back on.
func trimBehind(svc *Services, j *persistence.Journal, n *snapshots, needs uint64) error {
	below := min(n.needs.Swap(needs), needs) // needs only grow: what a snapshot before them needs is no less than that
	if svc.Trim <= 0 || below <= 1 {
		return nil
	}
	ctx, before := context.Background(), svc.Now().Add(-svc.Trim).UnixMilli()
	upto, from := uint64(0), uint64(1)
	look := func(e persistence.Entry) error {
		if e.Record.GetSeq() >= below || e.Record.GetAtUnixMs() >= before {
			return errFound
		}
		upto = e.Record.GetSeq()
		return nil
	}
	err := svc.Store.Read(ctx, j.Stream(), from, look)
	var left *persistence.TrimmedError
	if errors.As(err, &left) {
		from = left.First
		err = svc.Store.Read(ctx, j.Stream(), from, look)
	}
	if err != nil && !errors.Is(err, errFound) {
		return fmt.Errorf("look for what is old: %w", err)
	}
	if upto < from {
		return nil
	}
	if err := j.Trim(ctx, upto); err != nil {
		return fmt.Errorf("trim up to %d: %w", upto, err)
	}
	svc.Log.Info("records were removed for their age", "stream", j.Stream(), "upto", upto)
	return nil
}
