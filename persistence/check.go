package persistence

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// More limits, the same in every store, so that what one takes the others take too.
const (
	// MaxName is the longest name of a stream or a session, in bytes.
	MaxName = 1 << 10
	// MaxKey is the longest index key, idempotency key or timer id, in bytes.
	MaxKey = 4 << 10
	// MaxSecondary is the most that the keys, index entries and timers of one append may weigh, in bytes.
	MaxSecondary = 1 << 20
	// MaxOps is the most records, and the most secondary changes, of one append.
	MaxOps = 4096
	// MaxStreams is the most streams of one append.
	MaxStreams = 64
)

// Prepare refuses an append that no store may take (ErrInvalid, ErrTooLarge, ErrDuplicate for a
// key that it carries twice) and fills in Seq and Epoch of its records. Stores call it first,
// on the caller's goroutine: afterwards only the state of the store can refuse.
func Prepare(b []Batch) error {
	if len(b) == 0 || len(b) > MaxStreams {
		return fmt.Errorf("append to %d streams: %w", len(b), ErrInvalid)
	}
	var weight, records int
	for i := range b {
		if err := prepareBatch(&b[i]); err != nil {
			return err
		}
		for j := range i {
			if b[j].Lease.Stream == b[i].Lease.Stream {
				return fmt.Errorf("append to %s twice at once: %w", b[i].Lease.Stream, ErrInvalid)
			}
		}
		records += len(b[i].Records)
		for _, r := range b[i].Records {
			weight += Weight(r)
		}
	}
	if weight > MaxAppend || records > MaxOps {
		return fmt.Errorf("append %d records of %d bytes to %s: %w", records, weight, b[0].Lease.Stream, ErrTooLarge)
	}
	return checkSecondary(b)
}

func prepareBatch(b *Batch) error {
	if err := CheckName(b.Lease.Stream); err != nil {
		return fmt.Errorf("append: stream: %w", err)
	}
	if b.Session != "" {
		if err := CheckName(b.Session); err != nil {
			return fmt.Errorf("append to %s: session: %w", b.Lease.Stream, err)
		}
	}
	if b.Expect == 0 {
		return fmt.Errorf("append to %s at seq 0, the first is 1: %w", b.Lease.Stream, ErrInvalid)
	}
	for i, r := range b.Records {
		if r == nil {
			return fmt.Errorf("append to %s: record %d is nil: %w", b.Lease.Stream, i, ErrInvalid)
		}
		if len(r.Body) > MaxBlob {
			return fmt.Errorf("append to %s: body of %d bytes: %w", b.Lease.Stream, len(r.Body), ErrTooLarge)
		}
		if len(r.Body) == 0 && len(r.BodyBlob) != 0 && len(r.BodyBlob) != sha256.Size {
			return fmt.Errorf("append to %s: blob hash of %d bytes: %w", b.Lease.Stream, len(r.BodyBlob), ErrInvalid)
		}
		if !utf8.ValidString(r.TurnId) || !utf8.ValidString(r.CausationId) {
			return fmt.Errorf("append to %s: record %d has an id that is not UTF-8: %w", b.Lease.Stream, i, ErrInvalid)
		}
		r.Seq, r.Epoch = b.Expect+uint64(i), b.Lease.Epoch
	}
	for _, blob := range b.Blobs {
		if err := CheckBlob(blob); err != nil {
			return fmt.Errorf("append to %s: %w", b.Lease.Stream, err)
		}
	}
	return nil
}

// checkSecondary bounds what is not a record: its size, its number and the length of each key.
func checkSecondary(b []Batch) error {
	var weight, ops int
	var keys map[string]bool
	count := func(stream, key string, value []byte) error {
		weight += len(key) + len(value)
		ops++
		if key == "" || len(key) > MaxKey {
			return fmt.Errorf("append to %s: secondary key of %d bytes: %w", stream, len(key), ErrInvalid)
		}
		return nil
	}
	for i := range b {
		stream := b[i].Lease.Stream
		for _, k := range b[i].Keys {
			if err := count(stream, k.Name, k.Value); err != nil {
				return err
			}
			if keys[k.Name] {
				return fmt.Errorf("append to %s with key %q twice: %w", stream, k.Name, ErrDuplicate)
			}
			if keys == nil {
				keys = make(map[string]bool)
			}
			keys[k.Name] = true
		}
		for _, op := range b[i].Index {
			if err := count(stream, op.Key, op.Value); err != nil {
				return err
			}
		}
		for _, t := range b[i].Timers {
			if err := count(stream, t.ID, t.Value); err != nil {
				return err
			}
		}
	}
	if weight > MaxSecondary || ops > MaxOps {
		return fmt.Errorf("append %d secondary changes of %d bytes to %s: %w", ops, weight, b[0].Lease.Stream, ErrTooLarge)
	}
	return nil
}

// CheckName refuses names of streams and sessions that are empty, over MaxName, not UTF-8 or
// hold a NUL, which stores use as a separator.
func CheckName(name string) error {
	if name == "" || len(name) > MaxName || strings.IndexByte(name, 0) >= 0 || !utf8.ValidString(name) {
		shown := name
		if len(shown) > 64 {
			shown = shown[:64]
		}
		return fmt.Errorf("name %q of %d bytes: %w", shown, len(name), ErrInvalid)
	}
	return nil
}

// CheckBlob refuses a blob over MaxBlob and one whose hash is not that of its data.
func CheckBlob(b Blob) error {
	if len(b.Data) > MaxBlob {
		return fmt.Errorf("blob of %d bytes: %w", len(b.Data), ErrTooLarge)
	}
	if sha256.Sum256(b.Data) != b.Hash {
		return fmt.Errorf("blob %x does not have that hash: %w", b.Hash[:8], ErrInvalid)
	}
	return nil
}

// Weight is what a record counts towards MaxAppend: its encoded size, with the reference in
// the place of a body that goes to a blob.
func Weight(r *messages.Record) int {
	n := proto.Size(r)
	if len(r.Body) > BlobThreshold {
		n += sha256.Size - len(r.Body)
	}
	return n
}

// Detach returns a record as a store keeps it: a body over BlobThreshold becomes a blob, which
// the store writes first. The caller's record is not changed. The blob is nil when the body stays.
func Detach(r *messages.Record) (*messages.Record, *Blob) {
	if len(r.Body) <= BlobThreshold && (len(r.Body) == 0 || len(r.BodyBlob) == 0) {
		return r, nil
	}
	kept := &messages.Record{
		Seq: r.Seq, Epoch: r.Epoch, RecordId: r.RecordId, Type: r.Type, Schema: r.Schema, AtUnixMs: r.AtUnixMs,
		CausationId: r.CausationId, TurnId: r.TurnId, Ignorable: r.Ignorable,
	}
	if len(r.Body) <= BlobThreshold { // read back from a blob once, short enough to stay now
		kept.Body = r.Body
		return kept, nil
	}
	blob := &Blob{Hash: sha256.Sum256(r.Body), Data: r.Body}
	kept.BodyBlob = blob.Hash[:]
	return kept, blob
}

// CheckSnapshot refuses a snapshot that no store takes: of another stream than the lease's, or
// with a state over MaxBlob.
func CheckSnapshot(l Lease, s *messages.Snapshot) error {
	if err := CheckName(l.Stream); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	if s == nil || s.Stream != "" && s.Stream != l.Stream {
		return fmt.Errorf("snapshot of %s under a lease of %s: %w", s.GetStream(), l.Stream, ErrInvalid)
	}
	if len(s.State) > MaxBlob {
		return fmt.Errorf("snapshot of %s of %d bytes: %w", l.Stream, len(s.State), ErrTooLarge)
	}
	return nil
}
