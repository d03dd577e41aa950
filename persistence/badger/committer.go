package badger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	engine "github.com/dgraph-io/badger/v4"

	"github.com/troupe-dev/troupe/persistence"
)

// The committer is two goroutines and a queue. The stager takes tasks in order, checks them
// against what it knows of heads, cursors and keys, and stages their entries in the group at
// hand; the syncer commits one group at a time, as one transaction and so with one sync, and
// answers its tasks. While a group syncs the next one is staged.
//
// Order is what makes it correct. Tasks are staged in the order of the queue and groups are
// committed in the order of staging, so a task sees the effect of every earlier one, and is
// answered after all of them are durable. At most one group is in flight: a group's view of the
// database is opened before the group in front of it is committed and holds everything before
// that; what the group in front changes is known from the maps.

// task is one thing to do in the order of the queue.
type task interface {
	// stage adds the task's entries to the committer's group, or refuses and changes nothing.
	stage(c *committer) error
	// answer is called once, when everything up to the task is durable, or with the refusal.
	answer(err error)
}

// staged is a task and what staging made of it.
type staged struct {
	task task
	err  error
}

// group is what is committed in one transaction.
type group struct {
	n       uint64      // ordinal, from 1
	txn     *engine.Txn // takes the entries
	view    *engine.Txn // holds all groups before n-1
	tasks   []staged
	count   int64             // entries staged
	size    int64             // and their bytes, as the database counts them
	small   map[string][]byte // small values staged here that later tasks may ask for; nil: deleted
	answers sync.Once

	snapshots []knownSnapshot // staged here
}

// answer tells every task of the group. err is why its commit failed.
func (g *group) answer(err error) {
	g.answers.Do(func() {
		for _, s := range g.tasks {
			if s.err != nil {
				s.task.answer(s.err)
			} else {
				s.task.answer(err)
			}
		}
	})
}

// head is the end of a claimed stream.
type head struct {
	epoch uint64 // 0: released
	next  uint64
	group uint64 // that changed it last
}

// position is the end of a session.
type position struct {
	last  uint64
	group uint64 // that changed it last
}

// maxSessions is how many sessions' cursors are kept in memory, unless a test says otherwise;
// others are read again.
const maxSessions = 1 << 14

// txnOverhead is what the database adds to the bytes of an entry when it counts a transaction.
const txnOverhead = 16

// committer is confined to the stager goroutine, but for the channels and what is marked.
type committer struct {
	s     *Store
	queue *queue

	cur             *group
	flying          map[string][]byte // small of the group in front
	flyingSnapshots []knownSnapshot
	heads           map[string]head
	sessions        map[string]position
	released        []string
	claims          uint64
	gone            map[string]bool   // streams that are being deleted
	goneSessions    map[string]bool   // and sessions
	touched         map[[32]byte]bool // blobs that were referred to since deletions began; nil: none is under way
	deletions       int               // under way
	full            error             // why nothing may be written now
	commits         uint64            // transactions since the store was made; whoever commits has it
	handed          uint64            // groups given to the syncer
	synced          atomic.Uint64     // groups that it is done with
	lastSize        int               // tasks of the group in front
	keep            int               // sessions in memory
	maxCount        int64
	maxSize         int64

	groups  chan *group         // stager to syncer, unbuffered
	spare   chan [2]*engine.Txn // syncer to stager
	abandon chan struct{}       // closed when Close has waited long enough
	ended   chan struct{}       // closed when both goroutines are gone
}

func newCommitter(s *Store, commits uint64) *committer {
	return &committer{
		s: s, queue: newQueue(), commits: commits, keep: maxSessions,
		heads: make(map[string]head), sessions: make(map[string]position),
		gone: make(map[string]bool), goneSessions: make(map[string]bool),
		maxCount: s.db.MaxBatchCount() - 16, maxSize: s.db.MaxBatchSize() - 64<<10,
		groups: make(chan *group), spare: make(chan [2]*engine.Txn, 1),
		abandon: make(chan struct{}), ended: make(chan struct{}),
	}
}

// start opens the first group and runs both goroutines until the queue is closed.
func (c *committer) start() {
	c.open(c.s.transactions())
	go c.stageAll()
	go c.syncAll()
}

// open begins the next group.
func (c *committer) open(txns [2]*engine.Txn) {
	g := &group{n: 1, txn: txns[0], view: txns[1]}
	if c.cur != nil {
		g.n = c.cur.n + 1
		g.tasks = make([]staged, 0, len(c.cur.tasks))
	}
	c.cur = g
}

// stageAll is the stager.
func (c *committer) stageAll() {
	defer close(c.groups)
	for {
		var out chan *group
		if len(c.cur.tasks) > 0 {
			out = c.groups
		}
		select {
		case out <- c.cur:
			c.handed++
			c.advance(<-c.spare)
		case <-c.queue.wake:
			tasks, closed := c.queue.take()
			c.stageSome(tasks)
			if closed {
				c.cut()
				c.cur.txn.Discard()
				c.cur.view.Discard()
				return
			}
			c.gather()
			c.commitFew()
		case <-c.abandon:
			tasks, _ := c.queue.take()
			c.stageSome(tasks)
			c.drop()
			return
		}
	}
}

// gather lets the writers that the group in front has just answered hand in their next appends:
// without it their answers and one early append would split them into a group of one and a
// group of all others, at two syncs a round.
func (c *committer) gather() {
	for range 4 {
		if len(c.cur.tasks)*2 >= c.lastSize {
			return
		}
		runtime.Gosched()
		tasks, _ := c.queue.take()
		c.stageSome(tasks)
	}
}

// few is how many tasks are not worth a second goroutine.
const few = 2

// commitFew commits a small group here when the syncer has nothing to do: with few writers there
// is nothing to stage meanwhile, and each goroutine in between costs them a wake-up.
func (c *committer) commitFew() {
	n := len(c.cur.tasks)
	if n == 0 || n > few || c.lastSize > few || c.synced.Load() != c.handed {
		return
	}
	next := c.s.transactions()
	c.s.flight.Store(c.cur)
	c.cur.answer(c.commit(c.cur))
	c.s.flight.Store(nil)
	c.advance(next)
}

func (c *committer) stageSome(tasks []task) {
	if len(tasks) == 0 {
		return
	}
	c.full = c.s.guard.refuseAppends() // once for all: each asks the system
	for _, t := range tasks {
		err := c.s.refusal()
		if err == nil {
			err = t.stage(c)
		}
		c.cur.tasks = append(c.cur.tasks, staged{t, err})
	}
}

// cut hands the group at hand to the syncer and begins the next one.
func (c *committer) cut() {
	if len(c.cur.tasks) == 0 && c.cur.count == 0 {
		return
	}
	select {
	case c.groups <- c.cur:
		c.handed++
		c.advance(<-c.spare)
	case <-c.abandon:
		c.drop()
	}
}

// advance follows a handover: the group is in flight, or durable, and the one in front of it is
// durable. The next group's transactions were opened in between.
func (c *committer) advance(next [2]*engine.Txn) {
	c.flying, c.flyingSnapshots, c.lastSize = c.cur.small, c.cur.snapshots, len(c.cur.tasks)
	c.cur.view.Discard()
	c.open(next)
	c.forget()
}

// drop answers the group at hand when there is nobody left to commit it.
func (c *committer) drop() {
	c.cur.answer(c.s.refusal())
	c.cur.tasks, c.cur.count, c.cur.size, c.cur.small = nil, 0, 0, nil
	c.cur.answers = sync.Once{}
}

// forget lets go of released heads and, over maxSessions, of cursors: those that the group in
// flight did not change, which the view at hand holds.
func (c *committer) forget() {
	keep := c.released[:0]
	for _, stream := range c.released {
		h, ok := c.heads[stream]
		switch {
		case !ok || h.epoch != 0: // claimed again
		case h.group+1 >= c.cur.n:
			keep = append(keep, stream)
		default:
			delete(c.heads, stream)
		}
	}
	c.released = keep
	if len(c.sessions) <= c.keep {
		return
	}
	for session, p := range c.sessions {
		if p.group+1 < c.cur.n {
			delete(c.sessions, session)
		}
		if len(c.sessions) <= c.keep/2 {
			return
		}
	}
}

// room makes sure that entries of that many bytes fit into the group at hand.
func (c *committer) room(count, size int64) {
	if c.cur.count+count > c.maxCount || c.cur.size+size+count*txnOverhead > c.maxSize {
		c.cut()
	}
}

// put stages an entry. Room was made for it.
func (c *committer) put(e *engine.Entry) {
	c.note(c.cur.txn.SetEntry(e), e.Key, e.Value)
}

// remove stages a deletion.
func (c *committer) remove(key []byte) {
	c.note(c.cur.txn.Delete(key), key, nil)
}

// note counts a staged entry. The database takes every entry that room was made for: a refusal
// would commit an append in part, so that the store must stop.
func (c *committer) note(err error, key, value []byte) {
	if err != nil {
		c.s.fail(fmt.Errorf("stage entry of %d bytes: %w", len(key)+len(value), err))
	}
	c.cur.count++
	c.cur.size += int64(len(key)+len(value)) + txnOverhead
}

// remember makes a small value known to the tasks behind it, until their view holds it.
func (c *committer) remember(key string, value []byte) {
	if c.cur.small == nil {
		c.cur.small = make(map[string][]byte)
	}
	c.cur.small[key] = value
}

// recall reads a value as the tasks before have left it: staged, in flight or in the database.
// It returns nil when there is none.
func (c *committer) recall(key []byte) ([]byte, error) {
	if v, ok := c.cur.small[string(key)]; ok {
		return v, nil
	}
	if v, ok := c.flying[string(key)]; ok {
		return v, nil
	}
	v, err := get(c.cur.view, key)
	if errors.Is(err, persistence.ErrNotFound) {
		return nil, nil
	}
	return v, err
}

// has is recall for those who do not need the value.
func (c *committer) has(key []byte) (bool, error) {
	if v, ok := c.cur.small[string(key)]; ok {
		return v != nil, nil
	}
	if v, ok := c.flying[string(key)]; ok {
		return v != nil, nil
	}
	_, err := c.cur.view.Get(key)
	if errors.Is(err, engine.ErrKeyNotFound) {
		return false, nil
	}
	return err == nil, err
}

// present is remembered for a key whose value nobody asks for.
func present() []byte { return []byte{} }

// syncAll is the syncer.
func (c *committer) syncAll() {
	defer close(c.ended)
	for g := range c.groups {
		c.spare <- c.s.transactions()
		c.s.flight.Store(g)
		g.answer(c.commit(g))
		c.s.flight.Store(nil)
		c.synced.Add(1)
	}
	select {
	case left := <-c.spare: // opened for a group that was never begun
		left[0].Discard()
		left[1].Discard()
	default:
	}
}

// transactions opens what a group needs. It waits for commits in flight, so it is called when
// there is none.
func (s *Store) transactions() [2]*engine.Txn {
	return [2]*engine.Txn{s.db.NewTransaction(true), s.db.NewTransaction(false)}
}

// commit makes a group durable. A failed commit fails the store: what the log holds is unknown,
// and a second sync would report success for pages that the first has dropped.
func (c *committer) commit(g *group) error {
	if c.s.failed.Load() != nil {
		g.txn.Discard()
		return c.s.refusal()
	}
	if g.count == 0 {
		g.txn.Discard()
		return nil
	}
	key := []byte(metaCommits)
	c.commits++
	count := seal(key, binary.BigEndian.AppendUint64(nil, c.commits))
	err := g.txn.SetEntry(&engine.Entry{Key: key, Value: count})
	if err == nil {
		err = c.s.commit(g.txn)
	}
	if err != nil {
		c.s.fail(fmt.Errorf("commit: %w", err))
		return fmt.Errorf("append: %w: %w", persistence.ErrAmbiguous, c.s.refusal())
	}
	c.s.mark.note(c.commits)
	c.s.mark.noteTasks(g.tasks, c.commits)
	return nil
}
