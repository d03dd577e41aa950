package badger

import (
	"errors"
	"fmt"
	"path/filepath"

	engine "github.com/dgraph-io/badger/v4"

	"github.com/troupe-dev/troupe/persistence"
)

// RotateKey encrypts the keys of a store, which nobody holds, with another key than o.EncryptionKey. The data
// itself stays as it is: it is encrypted with keys of its own, which the database changes by itself. Errors: ErrKey
// and ErrLocked, with nothing changed.
func RotateKey(o Options, to []byte) error {
	if n := len(to); n != 16 && n != 24 && n != 32 {
		return fmt.Errorf("rotate the key of the store in %s: the new key has %d bytes, not 16, 24 or 32: %w", o.Dir, n, persistence.ErrKey)
	}
	lock, err := takeLock(o.Dir)
	if err == nil {
		err = errors.Join(rotate(o, to), lock.release())
	}
	if err != nil {
		return fmt.Errorf("rotate the key of the store in %s: %w", o.Dir, err)
	}
	return nil
}

func rotate(o Options, to []byte) error {
	if err := putBack(o.Dir); err != nil {
		return err
	}
	if o.EncryptionKey == nil {
		return fmt.Errorf("no key is configured: only an encrypted store has one to rotate: %w", persistence.ErrKey)
	}
	db := filepath.Join(o.Dir, "db")
	in, err := inspect(db, o.EncryptionKey)
	if err != nil {
		return err
	}
	if err := in.err(); err != nil { // a damaged registry would be written anew without what it lacks
		return err
	}
	if in.keys.registry == nil {
		return fmt.Errorf("there is no store: %w", persistence.ErrNotFound)
	}
	err = caught(func() error {
		return engine.WriteKeyRegistry(in.keys.registry, engine.KeyRegistryOptions{Dir: db, EncryptionKey: to})
	})
	if err != nil {
		return fmt.Errorf("write the keys: %w: %w", persistence.ErrUnavailable, err)
	}
	return nil
}
