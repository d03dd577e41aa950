package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/test/bench/load"
)

// resume opens the store, then the runtime, then one session, then all of them.
func (r *recovery) resume(ctx context.Context) (_ any, err error) {
	ids, err := r.ids()
	if err != nil {
		return nil, err
	}
	out := &load.Recovered{Sessions: len(ids)}
	began := time.Now()
	store, err := r.openStore(ctx)
	if err != nil {
		return nil, err
	}
	out.OpenMs = ms(began)
	if out.ReadMs, out.Read, err = readAll(ctx, store); err != nil {
		return nil, errors.Join(err, store.Close()) //nolint:contextcheck // it takes none, and bounds itself
	}
	began = time.Now()
	rt, err := r.start(ctx, store)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rt.close(ctx)) }()
	out.StartMs = ms(began)
	began = time.Now()
	if err := wake(ctx, rt, ids[len(ids)/2], r.turns); err != nil {
		return nil, err
	}
	out.OneMs = ms(began)
	store.records.Store(0)
	cpu, began := load.CPU(), time.Now()
	if err := side(len(ids), func(_, i int) error { return wake(ctx, rt, ids[i], r.turns) }); err != nil {
		return nil, err
	}
	out.AllMs, out.AllCPU, out.Records = ms(began), (load.CPU()-cpu)*1000, store.records.Load()
	return out, nil
}

// readAll reads every record of the store and does nothing with it: the yardstick.
func readAll(ctx context.Context, s *counting) (took float64, records int64, err error) {
	began := time.Now()
	var names []string
	err = s.Streams(ctx, "", func(name string) error { names = append(names, name); return nil })
	for _, name := range names {
		if err == nil {
			err = s.Store.Read(ctx, name, 1, func(persistence.Entry) error { records++; return nil })
		}
	}
	return ms(began), records, err
}

// wake has a session back with all that was said in it.
func wake(ctx context.Context, rt *opened, id string, turns int) error {
	s, err := rt.Open(ctx, id)
	if err != nil {
		return err
	}
	h, err := s.History(ctx)
	if err == nil && len(h.GetTurns()) != turns {
		err = fmt.Errorf("session %s has %d turns", id, len(h.GetTurns()))
	}
	return err
}

// long plays one long session and resumes it, with its snapshots and without.
func (r *recovery) long(ctx context.Context) (any, error) {
	r.sessions = 1
	out := &load.Snapshots{Turns: r.turns}
	cpu, began := load.CPU(), time.Now()
	store, err := r.playLong(ctx)
	if err != nil {
		return nil, err
	}
	out.PlayMs, out.PlayCPU = ms(began), (load.CPU()-cpu)*1000
	out.Written, out.WrittenKB, out.WriteMs = store.snapshots.Load(), float64(store.bytes.Load())/1024, float64(store.writing.Load())/1e6
	for _, whole := range []bool{false, true} {
		r.whole = whole
		took, records, err := r.wakeLong(ctx)
		if err != nil {
			return nil, err
		}
		if whole {
			out.WholeMs, out.WholeRecords = took, records
		} else {
			out.SnapMs, out.SnapRecords = took, records
		}
	}
	return out, nil
}

func (r *recovery) playLong(ctx context.Context) (store *counting, err error) {
	if store, err = r.openStore(ctx); err != nil {
		return nil, err
	}
	rt, err := r.start(ctx, store)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rt.close(ctx)) }()
	dir, err := load.Folder(r.work(), "long")
	if err != nil {
		return nil, err
	}
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir, Trust: troupe.Full, Model: load.Model})
	if err != nil {
		return nil, err
	}
	for n := range r.turns {
		if res, err := s.Run(ctx, load.Prompt(n)); err != nil || res.Outcome != "done" {
			return nil, fmt.Errorf("turn %d: %+v, %w", n, res, err)
		}
	}
	return store, r.keep([]string{s.ID()})
}

func (r *recovery) wakeLong(ctx context.Context) (took float64, records int64, err error) {
	ids, err := r.ids()
	if err != nil {
		return 0, 0, err
	}
	store, err := r.openStore(ctx)
	if err != nil {
		return 0, 0, err
	}
	rt, err := r.start(ctx, store)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, rt.close(ctx)) }()
	began := time.Now()
	err = wake(ctx, rt, ids[0], r.turns)
	return ms(began), store.records.Load(), err
}

func ms(since time.Time) float64 { return time.Since(since).Seconds() * 1000 }
