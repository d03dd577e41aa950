package badger

import (
	"encoding/binary"
	"time"
)

// The first byte of a key says what it is. Names are followed by a NUL, which they cannot hold,
// so that no name's keys are among those of another that it begins.
const (
	tagCommit   = 'e' // stream NUL first-seq: an append's records of one stream
	tagCursor   = 'c' // session NUL first-cursor: where those records are
	tagPiece    = 'p' // key number: a piece of a value over pieceSize
	tagIndex    = 'i' // secondary key
	tagOnce     = 'k' // idempotency key
	tagTimer    = 't' // timer id: its due time and value
	tagDue      = 'd' // due-time timer-id: order of the timers
	tagBlob     = 'b' // sha-256
	tagSnapshot = 's' // stream NUL seq
	tagMeta     = 'm' // what the store knows of itself
	tagFirst    = 'f' // tag name: where a stream or a session begins since it was trimmed
	tagPlan     = 'x' // name NUL number: what is being deleted
)

// tags are all of them, and the first byte of the database's own keys.
const tags = "ecpiktdbsmfx!"

// Keys of tagMeta: the number of openings and of commits, the store's random name, and what is left out of it.
const (
	metaBoot    = "mboot"
	metaCommits = "mcommits"
	metaStore   = "mstore"
	metaGaps    = "mgaps"
)

// nameKey appends the key of the n-th thing of a name: a stream's or a session's.
func nameKey(b []byte, tag byte, name string, n uint64) []byte {
	return binary.BigEndian.AppendUint64(namePrefix(b, tag, name), n)
}

// namePrefix appends what all keys of a name begin with.
func namePrefix(b []byte, tag byte, name string) []byte {
	b = append(b, tag)
	b = append(b, name...)
	return append(b, 0)
}

func nameKeySize(name string) int { return len(name) + 10 }

// splitName undoes nameKey.
func splitName(key []byte) (name string, n uint64, ok bool) {
	at := len(key) - 9
	if at < 2 || key[at] != 0 {
		return "", 0, false
	}
	return string(key[1:at]), binary.BigEndian.Uint64(key[at+1:]), true
}

// textKey appends the key of something that is known by a text alone.
func textKey(b []byte, tag byte, text string) []byte {
	return append(append(b, tag), text...)
}

func pieceKey(key []byte, n int) []byte {
	b := make([]byte, 0, len(key)+5)
	b = append(b, tagPiece)
	b = append(b, key...)
	return binary.BigEndian.AppendUint32(b, uint32(n))
}

// dueSize is what a due time takes in a key: it orders like the time.
const dueSize = 12

func appendDue(b []byte, t time.Time) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(t.Unix())^(1<<63))
	return binary.BigEndian.AppendUint32(b, uint32(t.Nanosecond()))
}

func dueTime(b []byte) time.Time {
	return time.Unix(int64(binary.BigEndian.Uint64(b)^(1<<63)), int64(binary.BigEndian.Uint32(b[8:])))
}

func dueKey(due []byte, id string) []byte {
	b := make([]byte, 0, 1+len(due)+len(id))
	return append(append(append(b, tagDue), due...), id...)
}
