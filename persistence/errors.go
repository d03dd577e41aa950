package persistence

import (
	"errors"
	"fmt"
)

// TrimmedError is ErrTrimmed, and says what is left.
type TrimmedError struct {
	Name  string // of the stream, or of the session
	First uint64 // seq, or cursor, of the first record that exists
}

// Error says from where on there is something.
func (e *TrimmedError) Error() string {
	return fmt.Sprintf("%s begins at %d: %v", e.Name, e.First, ErrTrimmed)
}

// Is makes it an ErrTrimmed.
func (e *TrimmedError) Is(target error) bool { return target == ErrTrimmed }

// The closed set of reasons why a store refuses. Stores wrap them with what they were doing.
var (
	// ErrFenced: another activation has claimed the stream since. The writer must stop.
	ErrFenced = errors.New("fenced by a newer epoch")
	// ErrConflict: Expect is not the stream's next seq. A bug of the writer, or a lost append.
	ErrConflict = errors.New("unexpected sequence number")
	// ErrDuplicate: an idempotency key of the append exists already; nothing was written.
	ErrDuplicate = errors.New("idempotency key exists")
	// ErrAmbiguous: the append may or may not be durable; read back by record id.
	ErrAmbiguous = errors.New("outcome of the append is unknown")
	// ErrUnavailable: the store cannot be reached or has failed; nothing was written.
	ErrUnavailable = errors.New("store unavailable")
	// ErrFull: too little free space to take more; nothing was written.
	ErrFull = errors.New("not enough free disk space")
	// ErrBusy: more waits for the disk than the store keeps in memory; nothing was written. Try again later.
	ErrBusy = errors.New("the disk does not keep up")
	// ErrCorrupt: stored bytes do not match their checksum or order.
	ErrCorrupt = errors.New("stored data is corrupt")
	// ErrAckedDataMissing: the watermark knows of commits that the database does not hold.
	ErrAckedDataMissing = errors.New("acknowledged data is missing")
	// ErrTrimmed: records from there were trimmed away; a *TrimmedError says what is left.
	ErrTrimmed = errors.New("what was before it was trimmed away")
	// ErrKey: the store is encrypted with another key, or is not encrypted, or no key was given. Nothing was changed.
	ErrKey = errors.New("encryption key does not fit")
	// ErrInvalid: a name, an append or a blob that no store takes. A bug of the writer; nothing was written.
	ErrInvalid = errors.New("invalid append")
	// ErrTooLarge: an append over MaxAppend or a blob over MaxBlob.
	ErrTooLarge = errors.New("append too large")
	// ErrLocked: another process holds the data directory.
	ErrLocked = errors.New("data directory is held by another process")
	// ErrNotFound: no such stream, key, snapshot or blob.
	ErrNotFound = errors.New("not found")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("store is closed")
)
