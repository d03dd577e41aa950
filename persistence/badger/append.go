package badger

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	engine "github.com/dgraph-io/badger/v4"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// appendTask is one append. It is encoded on the writer's goroutine but for the cursor and the
// checksum, which the stager adds. Its memory is pooled: the database copies keys and values
// into its table before a commit returns.
type appendTask struct {
	batches []persistence.Batch
	parts   []part
	blobs   []persistence.Blob // those of the batches and of large bodies
	refs    [][32]byte         // blobs that records refer to and that must exist
	receipt persistence.Receipt
	refused error // found while encoding
	done    func(persistence.Receipt, error)
	index   []engine.Entry // of the batches, in order; those that are deleted have no value
	cursors []uint64       // the first of each batch's records, 0 without a session
	buf     []byte         // behind all keys and values
	pool    *sync.Pool
	weight  int64         // that was admitted
	waiting *atomic.Int64 // of the store
}

// part is the entries of one batch's records: the commit and the cursor's index.
type part struct {
	commit engine.Entry
	crc    uint32 // of the commit's key and of its records
	cursor engine.Entry
	last   uint64 // cursor of the last record
}

// maxPooled is the largest buffer that is kept for the next append.
const maxPooled = 64 << 10

// Append makes the batches durable in one step: a nil error means synced to the disk. When ctx
// ends first the error is ErrAmbiguous: the append stays in the queue.
func (s *Store) Append(ctx context.Context, b ...persistence.Batch) (persistence.Receipt, error) {
	if err := ctx.Err(); err != nil {
		return persistence.Receipt{}, fmt.Errorf("append: %w", err)
	}
	type answer struct {
		receipt persistence.Receipt
		err     error
	}
	answered := make(chan answer, 1)
	s.Enqueue(func(r persistence.Receipt, err error) { answered <- answer{r, err} }, b...)
	select {
	case a := <-answered:
		return a.receipt, a.err
	case <-ctx.Done():
		return persistence.Receipt{}, fmt.Errorf("append: %w: %w", persistence.ErrAmbiguous, ctx.Err())
	}
}

// Enqueue hands an append to the committer. What the batches refer to belongs to the store until
// done is called. On a closed store done is called before Enqueue returns.
func (s *Store) Enqueue(done func(persistence.Receipt, error), b ...persistence.Batch) {
	t := s.appends.Get().(*appendTask)
	t.pool, t.done = &s.appends, done
	t.batches = append(t.batches[:0], b...)
	if t.refused = persistence.Prepare(b); t.refused == nil {
		t.encode()
	}
	if t.refused == nil {
		if t.refused = s.admit(t.size()); t.refused == nil {
			t.weight, t.waiting = t.size(), &s.waiting
		}
	}
	if !s.commits.queue.add(t) {
		t.answer(fmt.Errorf("append: %w", persistence.ErrClosed))
	}
}

// encode builds keys and values up to what only the stager knows. Prepare has checked the
// batches, and has measured their records: the cached sizes are used again.
func (t *appendTask) encode() {
	need, ops := 0, 0
	for i := range t.batches {
		b := &t.batches[i]
		for j, r := range b.Records {
			need += recordFrame + t.detach(b, j, r)
		}
		for _, op := range b.Index {
			need += 1 + len(op.Key) + len(op.Value) + sumSize
		}
		ops += len(b.Index)
		t.blobs = append(t.blobs, b.Blobs...)
		need += 2*nameKeySize(b.Lease.Stream) + 2*nameKeySize(b.Session) + tailSize(b.Session) + 2*binary.MaxVarintLen64 + 2*sumSize
	}
	if cap(t.buf) < need {
		t.buf = make([]byte, 0, need)
	}
	buf := t.buf[:0]
	if cap(t.parts) < len(t.batches) {
		t.parts = make([]part, len(t.batches))
	}
	t.parts = t.parts[:len(t.batches)]
	if cap(t.index) < ops {
		t.index = make([]engine.Entry, 0, ops)
	}
	t.index = t.index[:0]
	for i := range t.batches {
		b, p := &t.batches[i], &t.parts[i]
		*p = part{}
		for _, op := range b.Index {
			buf = t.encodeIndex(buf, op)
		}
		if len(b.Records) == 0 {
			continue
		}
		at := len(buf)
		buf = nameKey(buf, tagCommit, b.Lease.Stream, b.Expect)
		p.commit.Key = buf[at:len(buf):len(buf)]
		at = len(buf)
		buf = appendRecords(buf, b.Records)
		end := len(buf) + tailSize(b.Session)
		p.commit.Value = buf[at:len(buf):end]
		p.crc = sum(sum(0, p.commit.Key), p.commit.Value)
		buf = buf[:end]
		if b.Session != "" {
			buf = p.encodeCursor(buf, b)
		}
	}
}

// encodeIndex builds the entry of a secondary key.
func (t *appendTask) encodeIndex(buf []byte, op persistence.IndexOp) []byte {
	at := len(buf)
	buf = textKey(buf, tagIndex, op.Key)
	e := engine.Entry{Key: buf[at:len(buf):len(buf)]}
	if !op.Delete {
		at = len(buf)
		buf = binary.BigEndian.AppendUint32(append(buf, op.Value...), sum(sum(0, e.Key), op.Value))
		e.Value = buf[at:len(buf):len(buf)]
	}
	t.index = append(t.index, e)
	return buf
}

// detach replaces a record whose body goes to a blob and returns the encoded size of what stays.
func (t *appendTask) detach(b *persistence.Batch, j int, r *messages.Record) int {
	kept, blob := persistence.Detach(r)
	if blob != nil {
		t.blobs = append(t.blobs, *blob)
	} else if len(kept.BodyBlob) != 0 {
		t.refs = append(t.refs, [32]byte(kept.BodyBlob))
	}
	if kept != r {
		own := make([]*messages.Record, len(b.Records)) // the slice is the writer's
		copy(own, b.Records)
		own[j] = kept
		b.Records = own
		return proto.Size(kept)
	}
	return proto.MarshalOptions{UseCachedSize: true}.Size(kept)
}

// tailSize is the room behind the records for cursor, session and checksum.
func tailSize(session string) int {
	return 2 + 2*binary.MaxVarintLen64 + len(session) + sumSize
}

// encodeCursor builds the index entry that leads from a cursor to the commit.
func (p *part) encodeCursor(buf []byte, b *persistence.Batch) []byte {
	at := len(buf)
	buf = nameKey(buf, tagCursor, b.Session, 0)
	p.cursor.Key = buf[at:len(buf):len(buf)]
	at = len(buf)
	buf = binary.AppendUvarint(buf, b.Expect)
	buf = binary.AppendUvarint(buf, uint64(len(b.Records)))
	buf = append(buf, b.Lease.Stream...)
	end := len(buf) + sumSize
	p.cursor.Value = buf[at:len(buf):end]
	return buf[:end]
}

// finish adds the cursor and the checksums.
func (p *part) finish(b *persistence.Batch, first uint64) {
	v := p.commit.Value
	at := len(v)
	if b.Session != "" {
		v = protowire.AppendTag(v, 2, protowire.VarintType)
		v = protowire.AppendVarint(v, first)
		v = protowire.AppendTag(v, 3, protowire.BytesType)
		v = protowire.AppendString(v, b.Session)
		binary.BigEndian.PutUint64(p.cursor.Key[len(p.cursor.Key)-8:], first)
		p.cursor.Value = seal(p.cursor.Key, p.cursor.Value)
	}
	p.commit.Value = binary.BigEndian.AppendUint32(v, sum(p.crc, v[at:]))
}

// stage checks the append against everything before it and stages it whole.
func (t *appendTask) stage(c *committer) error {
	if t.refused != nil {
		return t.refused
	}
	if c.full != nil {
		return fmt.Errorf("append: %w", c.full)
	}
	for i := range t.batches {
		if err := c.admit(&t.batches[i]); err != nil {
			return err
		}
	}
	if err := t.resolve(c); err != nil {
		return err
	}
	if err := t.locate(c); err != nil {
		return err
	}
	// Blobs and pieces may be committed ahead: nothing refers to them before the append does.
	for _, blob := range t.blobs {
		if err := c.stageBlob(blob); err != nil {
			return fmt.Errorf("append: %w", err)
		}
	}
	t.shrink(c)
	count, size := t.weigh()
	if count > c.maxCount || size+count*txnOverhead > c.maxSize {
		return fmt.Errorf("append %d entries of %d bytes: %w", count, size, persistence.ErrTooLarge)
	}
	c.room(count, size) // nothing refuses from here on: what is staged is committed
	index := t.index
	for i := range t.batches {
		index = t.stageBatch(c, i, index)
	}
	return nil
}

// admit checks a batch's lease, seq and keys.
func (c *committer) admit(b *persistence.Batch) error {
	h, claimed := c.heads[b.Lease.Stream]
	if !claimed || h.epoch != b.Lease.Epoch {
		return fmt.Errorf("append to %s at epoch %d, newest is %d: %w", b.Lease.Stream, b.Lease.Epoch, h.epoch, persistence.ErrFenced)
	}
	if h.next != b.Expect {
		return fmt.Errorf("append to %s at seq %d, next is %d: %w", b.Lease.Stream, b.Expect, h.next, persistence.ErrConflict)
	}
	for _, k := range b.Keys {
		exists, err := c.has(textKey(nil, tagOnce, k.Name))
		if err != nil {
			return fmt.Errorf("append to %s: look up key %q: %w", b.Lease.Stream, k.Name, err)
		}
		if exists {
			return fmt.Errorf("append to %s with key %q: %w", b.Lease.Stream, k.Name, persistence.ErrDuplicate)
		}
		if err := c.s.lost.refuseKey(c.cur.view, k.Name); err != nil { // it may have been used
			return fmt.Errorf("append to %s: %w", b.Lease.Stream, err)
		}
	}
	return nil
}

// resolve refuses records that refer to blobs which neither exist nor come with the append.
func (t *appendTask) resolve(c *committer) error {
	if len(t.refs) == 0 {
		return nil
	}
next:
	for _, ref := range t.refs {
		for _, blob := range t.blobs {
			if blob.Hash == ref {
				continue next
			}
		}
		known, err := c.has(blobKey(ref))
		if err != nil {
			return fmt.Errorf("append: %w", err)
		}
		c.touch(ref)
		if !known {
			return fmt.Errorf("append to %s: blob %x: %w", t.batches[0].Lease.Stream, ref[:8], persistence.ErrNotFound)
		}
	}
	return nil
}

// locate gives each batch its session's next cursors; 0 stands for no session. A session that
// several batches share is counted through.
func (t *appendTask) locate(c *committer) error {
	t.cursors = append(t.cursors[:0], make([]uint64, len(t.batches))...)
	cursors := t.cursors
	for i := range t.batches {
		b := &t.batches[i]
		if b.Session == "" || len(b.Records) == 0 {
			continue
		}
		if c.goneSessions[b.Session] {
			return fmt.Errorf("append: session %s is being deleted: %w", b.Session, persistence.ErrUnavailable)
		}
		p, known := c.sessions[b.Session]
		if !known {
			last, err := lastCursor(c.cur.view, c.s.lost, b.Session)
			if err != nil {
				return fmt.Errorf("append: %w", err)
			}
			p = position{last: last}
			c.sessions[b.Session] = p
		}
		last := p.last
		for j := range i {
			if t.batches[j].Session == b.Session {
				last += uint64(len(t.batches[j].Records))
			}
		}
		cursors[i] = last + 1
	}
	t.receipt = persistence.Receipt{First: cursors[0]}
	if end := len(cursors) - 1; cursors[end] != 0 {
		t.receipt.Last = cursors[end] + uint64(len(t.batches[end].Records)) - 1
	}
	return nil
}

// shrink finishes the values and moves long ones to pieces, which are committed ahead: what must
// be in one transaction then always fits into one.
func (t *appendTask) shrink(c *committer) {
	total := 0
	for i := range t.parts {
		if p := &t.parts[i]; p.commit.Key != nil {
			p.finish(&t.batches[i], t.cursors[i])
			total += len(p.commit.Value)
		}
	}
	limit := pieceSize
	if total > 2*pieceSize {
		limit = pieceSize / 16
	}
	for i := range t.parts {
		p := &t.parts[i]
		pieces, stub := cut(p.commit.Key, p.commit.Value, limit)
		if pieces == nil {
			continue
		}
		for _, e := range pieces {
			c.room(1, int64(len(e.Key)+len(e.Value)))
			c.put(e)
		}
		p.commit.Value, p.commit.UserMeta = stub, userPieces
	}
}

// weigh counts the entries that must be in one transaction.
func (t *appendTask) weigh() (count, size int64) {
	for i := range t.batches {
		b, p := &t.batches[i], &t.parts[i]
		count += 2 + int64(len(b.Keys)+len(b.Index)+3*len(b.Timers))
		size += int64(len(p.commit.Key) + len(p.commit.Value) + len(p.cursor.Key) + len(p.cursor.Value))
		for _, k := range b.Keys {
			size += int64(len(k.Name)+len(k.Value)) + 1 + sumSize
		}
		for _, op := range b.Index {
			size += int64(len(op.Key)+len(op.Value)) + 1 + sumSize
		}
		for _, timer := range b.Timers {
			size += int64(3*len(timer.ID)+len(timer.Value)) + 3 + 3*dueSize + 2*sumSize
		}
	}
	return count, size
}

// stageBatch stages one batch with its own of the secondary keys, and returns the others'.
func (t *appendTask) stageBatch(c *committer, i int, index []engine.Entry) []engine.Entry {
	b, p := &t.batches[i], &t.parts[i]
	n := uint64(len(b.Records))
	if n > 0 {
		c.put(&p.commit)
		if b.Session != "" {
			c.put(&p.cursor)
			p.last = t.cursors[i] + n - 1
			c.sessions[b.Session] = position{last: p.last, group: c.cur.n}
		}
	}
	c.heads[b.Lease.Stream] = head{epoch: b.Lease.Epoch, next: b.Expect + n, group: c.cur.n}
	for _, k := range b.Keys {
		key := textKey(nil, tagOnce, k.Name)
		c.put(sealed(key, k.Value))
		c.remember(string(key), present())
	}
	for j := range b.Index {
		if e := &index[j]; e.Value != nil {
			c.put(e)
		} else {
			c.remove(e.Key)
		}
	}
	for _, timer := range b.Timers {
		c.stageTimer(timer)
	}
	return index[len(b.Index):]
}

// size is what the append holds in memory of its own and of blobs, in bytes.
func (t *appendTask) size() int64 {
	n := int64(1)
	for i := range t.parts {
		p, b := &t.parts[i], &t.batches[i]
		n += int64(len(p.commit.Key) + cap(p.commit.Value) + len(p.cursor.Key) + cap(p.cursor.Value))
		for _, op := range b.Index {
			n += int64(len(op.Key) + len(op.Value))
		}
	}
	for _, b := range t.blobs {
		n += int64(len(b.Data))
	}
	return n
}

func (t *appendTask) answer(err error) {
	if t.waiting != nil {
		t.waiting.Add(-t.weight)
		t.waiting = nil
	}
	receipt, done, pool := t.receipt, t.done, t.pool
	if err != nil {
		done(persistence.Receipt{}, err) // not pooled: a commit that hangs may still read the memory
		return
	}
	t.reset()
	pool.Put(t)
	done(receipt, nil)
}

// reset lets go of everything that is the writer's, and of a buffer that one append made large.
func (t *appendTask) reset() {
	clear(t.batches)
	clear(t.parts)
	clear(t.blobs)
	clear(t.index)
	buf := t.buf
	if cap(buf) > maxPooled {
		buf = nil
	}
	*t = appendTask{
		buf: buf, batches: t.batches[:0], parts: t.parts[:0], blobs: t.blobs[:0], refs: t.refs[:0],
		index: t.index[:0], cursors: t.cursors[:0],
	}
}
