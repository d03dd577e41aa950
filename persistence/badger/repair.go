package badger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	engine "github.com/dgraph-io/badger/v4"

	"github.com/troupe-dev/troupe/persistence"
)

// RepairOptions says what a repair may do.
type RepairOptions struct {
	// Accept makes the loss final. Without it nothing is changed and the report says what would be lost.
	Accept bool
	// Now names the folder that keeps the damaged bytes. nil: time.Now.
	Now func() time.Time
	// Needs names the stream without which an index entry is of no use, "" when there is none: such
	// entries go with their stream. nil: all stay.
	Needs func(indexKey string) (stream string)
}

// Loss is records that are gone: from a seq on, to another, both included. To is 0 when nobody knows
// how many there were.
type Loss struct {
	Stream  string `json:"stream"`
	Session string `json:"session,omitempty"` // whose cursor counted them, when that is known
	From    uint64 `json:"from"`
	To      uint64 `json:"to,omitempty"`
	Why     string `json:"why"`
}

// Repaired is what a repair found, and did or would do.
type Repaired struct {
	Damaged []string `json:"damaged"` // files, and what is wrong with each
	Lost    []Loss   `json:"lost"`    // records
	Other   []string `json:"other"`   // what is lost besides: index entries, keys, timers, snapshots
	Mended  []string `json:"mended"`  // what was put together again without loss
	Acked   uint64   `json:"acked"`   // commits that were acknowledged
	Held    uint64   `json:"held"`    // and that the store still counts
	Streams int64    `json:"streams"` // that are whole, up to their ends
	Records int64    `json:"records"`
	Kept    string   `json:"kept,omitempty"` // folder with the damaged bytes
}

// Nothing says that there is nothing to repair.
func (r *Repaired) Nothing() bool {
	return len(r.Damaged)+len(r.Lost)+len(r.Other)+len(r.Mended) == 0 && r.Acked <= r.Held
}

// The folders of a repair, in the store's.
const (
	repairDir  = "db.repair"
	keptPrefix = "damaged-"
	reportFile = "report.json"
)

// Repair builds a store of everything that still reads, cuts each damaged stream behind its last good
// record, and puts it in the place of the damaged one, which is kept in damaged-TIME. It says what is lost; without
// RepairOptions.Accept it does no more than that. Errors: ErrLocked, ErrKey, ErrUnavailable.
func Repair(ctx context.Context, o Options, ro RepairOptions) (*Repaired, error) {
	o = o.withDefaults()
	r := &repair{ctx: ctx, o: o, ro: ro, out: &Repaired{Damaged: []string{}, Lost: []Loss{}, Other: []string{}, Mended: []string{}}}
	if ro.Now == nil {
		r.ro.Now = time.Now
	}
	lock, err := takeLock(o.Dir)
	if err == nil {
		err = errors.Join(r.run(), lock.release())
	}
	if err != nil {
		return nil, fmt.Errorf("repair store in %s: %w", o.Dir, err)
	}
	return r.out, nil
}

// repair is one under way.
type repair struct {
	ctx context.Context
	o   Options
	ro  RepairOptions
	out *Repaired
	in  *inspection
	db  *engine.DB

	boot uint64 // the highest that wrote a record
}

func (r *repair) run() (err error) {
	if err := putBack(r.o.Dir); err != nil {
		return err
	}
	if r.in, err = inspect(filepath.Join(r.o.Dir, "db"), r.o.EncryptionKey); err != nil {
		return err
	}
	for _, d := range r.in.damaged {
		r.out.Damaged = append(r.out.Damaged, d.String())
	}
	beside := filepath.Join(r.o.Dir, repairDir)
	if err := os.RemoveAll(beside); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(beside)) }() // gone already when it was put in place
	if err := r.build(beside); err != nil {
		return err
	}
	if !r.ro.Accept || r.out.Nothing() {
		return nil
	}
	return r.replace(beside)
}

// build makes the repaired database.
func (r *repair) build(dir string) (err error) {
	opts := engineOptions(dir, r.o, &engineLog{log: r.o.Logger}).WithSyncWrites(false)
	db, err := engine.OpenManaged(opts)
	if err != nil {
		return fmt.Errorf("make a database: %w: %w", persistence.ErrUnavailable, err)
	}
	holes, err := salvageInto(db, r.in, r.in.keys)
	if err = errors.Join(err, db.Close(), writeFormat(dir)); err != nil {
		return err
	}
	r.out.Damaged = append(r.out.Damaged, holes...)
	if !r.in.listed && len(r.in.torn) > 0 {
		r.out.Mended = append(r.out.Mended, "the list of tables, which ends in an entry that is not whole")
	}
	if r.db, err = engine.Open(opts); err != nil {
		return fmt.Errorf("open what was salvaged: %w: %w", persistence.ErrUnavailable, err)
	}
	defer func() { err = errors.Join(err, r.db.Sync(), r.db.Close()) }()
	if err := r.mend(); err != nil {
		return err
	}
	if r.out.Nothing() {
		return nil
	}
	return renew(r.db, r.boot) // what was lost had epochs and versions that must not come up again
}

// mend makes what was salvaged hold together.
func (r *repair) mend() error {
	path := filepath.Join(r.o.Dir, "db.watermark")
	m := &mender{ctx: r.ctx, db: r.db, needs: r.ro.Needs, out: r.out, known: map[string]uint64{}, cursors: map[string]uint64{}, sessions: map[string]string{}}
	var err error
	if m.doubts, err = r.gaps(); err != nil {
		return err
	}
	m.lost = m.doubts.ranged()
	if err := finishDeletions(r.ctx, r.db, m.doubts); err != nil {
		r.out.Damaged = append(r.out.Damaged, err.Error())
	}
	if err := m.recall(path, r.o.EncryptionKey != nil); err != nil {
		return err
	}
	if err := m.run(); err != nil {
		return fmt.Errorf("mend what was salvaged: %w", err)
	}
	r.boot = m.boot
	r.out.Held, err = readCount(r.db, metaCommits)
	return err
}

// gaps are those that the store was opened without, and those that it could be opened without.
func (r *repair) gaps() (g *gaps, err error) {
	err = r.db.View(func(txn *engine.Txn) error { g, err = readGaps(txn); return err })
	switch {
	case errors.Is(err, persistence.ErrCorrupt):
		r.out.Damaged = append(r.out.Damaged, err.Error())
	case err != nil:
		return nil, err
	}
	if g == nil {
		g = &gaps{}
	}
	for i := range g.Gaps {
		r.out.Damaged = append(r.out.Damaged, g.Gaps[i].String())
	}
	for i := range g.Second {
		if _, only := g.Second[i].secondary(); only && !g.Accepted {
			r.out.Damaged = append(r.out.Damaged, g.Second[i].String())
		}
	}
	for _, d := range r.in.damaged {
		for _, s := range d.spans {
			if p, ok := s.gap(d.file); ok {
				g.add([]gap{p})
			}
		}
	}
	if err == nil {
		err = r.doubts(g)
	}
	if err == nil && len(g.Gaps)+len(g.Second) == 0 {
		return nil, nil //nolint:nilnil // none
	}
	return g, nil
}

// doubts adds the gaps of which it is not certain what they held, and that may have held more than records.
func (r *repair) doubts(g *gaps) error {
	m := r.in.without()
	if m == nil {
		return nil
	}
	if _, ranged := m.gaps(); ranged || len(m.holes) == 0 {
		return nil
	}
	return r.db.View(func(txn *engine.Txn) error {
		a, err := absentIn(r.ctx, txn, m.holes, g)
		if err == nil && len(a.keys) != m.entries {
			found, _ := m.doubts()
			g.add(found)
		}
		return err
	})
}

// replace keeps the damaged bytes and puts the repaired database in their place. From the second rename
// on, an opening finishes it, but for the watermark, which a repair lowers again.
func (r *repair) replace(beside string) error {
	kept := filepath.Join(r.o.Dir, keptPrefix+r.ro.Now().UTC().Format("20060102T150405Z"))
	if err := os.Mkdir(kept, 0o700); err != nil {
		return fmt.Errorf("keep what is damaged: %w", err)
	}
	if err := copyDatabase(filepath.Join(r.o.Dir, "db"), filepath.Join(kept, "db")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("keep what is damaged: %w", err)
	}
	mark := filepath.Join(r.o.Dir, "db.watermark")
	if err := copySparse(mark, filepath.Join(kept, "db.watermark")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("keep the watermark: %w", err)
	}
	r.out.Kept = kept
	text, err := json.MarshalIndent(r.out, "", "  ")
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if err := os.WriteFile(filepath.Join(kept, reportFile), append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if err := errors.Join(syncDir(kept), syncDir(beside), syncDir(r.o.Dir)); err != nil {
		return err
	}
	if err := os.Rename(beside, filepath.Join(r.o.Dir, asideDir)); err != nil {
		return fmt.Errorf("put the repaired store in place: %w", err)
	}
	if err := os.Remove(mark); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("lower the watermark: %w", err)
	}
	return putBack(r.o.Dir)
}
