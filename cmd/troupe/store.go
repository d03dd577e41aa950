package main

import (
	"context"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/persistence/badger"
)

// storeOptions is the section data as the store takes it, for commands that work on a store itself.
func (a *app) storeOptions(ctx context.Context, loaded *config.Loaded) (badger.Options, error) {
	key, err := loaded.StoreKey(ctx)
	return badger.Options{Dir: troupe.StoreDir(loaded.Config.Data.Dir), EncryptionKey: key}, err
}
