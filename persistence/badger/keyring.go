package badger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	engine "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/y"

	"github.com/troupe-dev/troupe/persistence"
)

// keyring is the keys that the database's files are encrypted with, which stand in its registry,
// themselves encrypted with ours.
type keyring struct {
	registry *engine.KeyRegistry // nil: there is none yet
}

// The registry begins with an initial vector and a text that decrypts to itself with the right key.
const registryText = "Hello Badger"

// registry opens the keys of a database. An error is ErrKey when the key is not the store's.
func (in *inspection) registry(key []byte) (*keyring, error) {
	path := filepath.Join(in.dir, registryFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &keyring{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w: %w", registryFile, persistence.ErrUnavailable, err)
	}
	if problem := registryProblem(b); problem != "" {
		in.found(registryFile, "%s", problem)
		return &keyring{}, nil
	}
	plain := string(b[16:16+len(registryText)]) == registryText
	switch {
	case plain && key != nil:
		return nil, fmt.Errorf("the store is not encrypted, and a key is configured: %w", persistence.ErrKey)
	case !plain && key == nil:
		return nil, fmt.Errorf("the store is encrypted, and no key is configured (or %s is damaged): %w", registryFile, persistence.ErrKey)
	}
	k := &keyring{}
	err = caught(func() (err error) {
		k.registry, err = engine.OpenKeyRegistry(engine.KeyRegistryOptions{Dir: in.dir, ReadOnly: true, EncryptionKey: key})
		return err
	})
	switch {
	case errors.Is(err, engine.ErrEncryptionKeyMismatch):
		return nil, fmt.Errorf("the key is not the one that the store was encrypted with (or %s is damaged): %w", registryFile, persistence.ErrKey)
	case err != nil:
		in.found(registryFile, "%v", err)
		return &keyring{}, nil
	}
	return k, nil
}

// registryProblem says what is wrong with a registry's form. The database allocates whatever a
// damaged length asks for.
func registryProblem(b []byte) string {
	const head = 16 + len(registryText)
	if len(b) < head {
		return "it is too short"
	}
	for rest := b[head:]; len(rest) > 0; {
		if len(rest) < 8 {
			return "it ends in the middle of a key"
		}
		n := uint64(binary.BigEndian.Uint32(rest))
		if n > uint64(len(rest)-8) {
			return "it ends in the middle of a key"
		}
		if crc32.Checksum(rest[8:8+n], crc32.MakeTable(crc32.Castagnoli)) != binary.BigEndian.Uint32(rest[4:]) {
			return "a key does not match its checksum"
		}
		rest = rest[8+n:]
	}
	return ""
}

// ids are the numbers of the keys. The database does not list them: they are tried.
func (k *keyring) ids() []uint64 {
	var out []uint64
	for id, missed := uint64(1), 0; missed < 64; id++ {
		if _, err := k.data(id); err != nil {
			missed++
			continue
		}
		out, missed = append(out, id), 0
	}
	return out
}

// data returns a key by its number.
func (k *keyring) data(id uint64) ([]byte, error) {
	if k.registry == nil {
		return nil, fmt.Errorf("it is encrypted with key %d, which %s does not hold", id, registryFile)
	}
	dk, err := k.registry.DataKey(id)
	if err != nil || dk == nil {
		return nil, fmt.Errorf("it is encrypted with key %d, which %s does not hold", id, registryFile)
	}
	return dk.Data, nil
}

// decrypt returns key and value of a log's entry, which are encrypted together.
func (k *keyring) decrypt(log []byte, e logEntry, at int) (key, value []byte, err error) {
	id := binary.BigEndian.Uint64(log)
	if id == 0 {
		return e.key, e.value, nil
	}
	master, err := k.data(id)
	if err != nil {
		return nil, nil, err
	}
	iv := binary.BigEndian.AppendUint32(slices.Clone(log[8:logHeader]), uint32(at))
	b, err := y.XORBlockAllocate(slices.Concat(e.key, e.value), master, iv)
	if err != nil {
		return nil, nil, err
	}
	return b[:len(e.key)], b[len(e.key):], nil
}

// plausible says whether a log's first entry has a key of ours. The initial vector in its header has no checksum.
func (k *keyring) plausible(b []byte) bool {
	e, n := entryAt(b, logHeader)
	if n == 0 {
		return true
	}
	key, _, err := k.decrypt(b, e, logHeader)
	return err == nil && len(key) > 8 && strings.IndexByte(tags, key[0]) >= 0
}

// header says whether a log's header names a key that there is.
func (k *keyring) header(b []byte) bool {
	if len(b) < logHeader {
		return zeros(b)
	}
	id := binary.BigEndian.Uint64(b)
	if id == 0 {
		return true
	}
	_, err := k.data(id)
	return err == nil
}
