package badger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	engine "github.com/dgraph-io/badger/v4"

	"github.com/troupe-dev/troupe/persistence"
)

// Every value ends in a crc32c of its key and its content: a flipped bit, or a value under the
// wrong key, is found when it is read. The database's own checksums cover blocks when a table is
// opened, not a value that was damaged later or on its way.
const sumSize = 4

// pieceSize is the largest value that is kept in one entry. Larger ones are cut: the database
// keeps values over 1 MiB in a log whose failed syncs it does not report.
const pieceSize = 512 << 10

// maxCut is the longest value that is cut.
const maxCut = persistence.MaxBlob + 1<<20

// userPieces marks, in the entry's user byte, a value whose content stands in pieces.
const userPieces = 1

func sum(crc uint32, b []byte) uint32 {
	return crc32.Update(crc, crc32.MakeTable(crc32.Castagnoli), b)
}

// seal appends the checksum to a value that will stand under a key.
func seal(key, value []byte) []byte {
	return binary.BigEndian.AppendUint32(value, sum(sum(0, key), value))
}

// sealed builds the entry of a short value; the value is copied.
func sealed(key, value []byte) *engine.Entry {
	return &engine.Entry{Key: key, Value: seal(key, append(make([]byte, 0, len(value)+sumSize), value...))}
}

var errSum = errors.New("checksum does not match")

// unseal returns the content of a sealed value.
func unseal(key, value []byte) ([]byte, error) {
	at := len(value) - sumSize
	if at < 0 || sum(sum(0, key), value[:at]) != binary.BigEndian.Uint32(value[at:]) {
		return nil, fmt.Errorf("%w: %w", errSum, persistence.ErrCorrupt)
	}
	return value[:at:at], nil
}

// cut splits a sealed value over limit (at most pieceSize) into entries, which may be committed
// ahead, and the short value that stands under the key in their place.
func cut(key, sealed []byte, limit int) (pieces []*engine.Entry, stub []byte) {
	if len(sealed) <= limit {
		return nil, nil
	}
	stub = seal(key, binary.BigEndian.AppendUint64(nil, uint64(len(sealed))))
	for n, rest := 0, sealed; len(rest) > 0; n++ {
		size := min(len(rest), pieceSize)
		pieces = append(pieces, &engine.Entry{Key: pieceKey(key, n), Value: rest[:size]})
		rest = rest[size:]
	}
	return pieces, stub
}

// content reads the value of an item, whole and checked. The bytes are the caller's.
func content(txn *engine.Txn, item *engine.Item) ([]byte, error) {
	value, err := item.ValueCopy(nil)
	if err != nil {
		return nil, fmt.Errorf("read value: %w: %w", err, persistence.ErrCorrupt)
	}
	return whole(txn, item.KeyCopy(nil), value, item.UserMeta())
}

// whole puts a value together from its pieces and checks it.
func whole(txn *engine.Txn, key, value []byte, meta byte) ([]byte, error) {
	if meta&userPieces == 0 {
		return unseal(key, value)
	}
	stub, err := unseal(key, value)
	if err != nil {
		return nil, err
	}
	if len(stub) != 8 {
		return nil, fmt.Errorf("value in pieces has a stub of %d bytes: %w", len(stub), persistence.ErrCorrupt)
	}
	size := binary.BigEndian.Uint64(stub)
	if size > maxCut {
		return nil, fmt.Errorf("value in pieces of %d bytes: %w", size, persistence.ErrCorrupt)
	}
	sealed := make([]byte, 0, size)
	for n := 0; uint64(len(sealed)) < size; n++ {
		item, err := txn.Get(pieceKey(key, n))
		if err != nil {
			return nil, fmt.Errorf("piece %d: %w: %w", n, err, persistence.ErrCorrupt)
		}
		err = item.Value(func(b []byte) error {
			if len(b) == 0 || uint64(len(sealed)+len(b)) > size {
				return fmt.Errorf("piece %d of %d bytes: %w", n, len(b), persistence.ErrCorrupt)
			}
			sealed = append(sealed, b...)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return unseal(key, sealed)
}

// get reads one value, ErrNotFound when the key does not exist.
func get(txn *engine.Txn, key []byte) ([]byte, error) {
	item, err := txn.Get(key)
	if errors.Is(err, engine.ErrKeyNotFound) {
		return nil, persistence.ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("get: %w", err)
	}
	return content(txn, item)
}
