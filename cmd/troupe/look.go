package main

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/config"
)

// dataExists tells whether anything was ever kept in the data directory. What it cannot see it takes
// to be there, so that opening it says why.
func dataExists(loaded *config.Loaded) bool {
	_, err := os.Stat(troupe.StoreDir(loaded.Config.Data.Dir))
	return !errors.Is(err, fs.ErrNotExist)
}

// kept tells whether there is anything to ask: the data directory, or a server.
func kept(loaded *config.Loaded) bool { return loaded.Config.Server.URL != "" || dataExists(loaded) }

// look asks questions of the data directory without changing anything: of the store, or of the process
// that holds it. Where there is no data directory, empty answers and none is made.
func (a *app) look(ctx context.Context, loaded *config.Loaded, empty func() error, work func(ctx context.Context, n node) error) error {
	if !kept(loaded) {
		return empty()
	}
	h, err := a.openHouse(ctx, opening{loaded: loaded, models: newModels(loaded, a.secrets)})
	if err != nil {
		return err
	}
	err = h.during(ctx, func(ctx context.Context) error { return work(ctx, h) })
	if cerr := h.close(ctx); err == nil && cerr != nil {
		a.note("troupe: warning: %v", cerr)
	}
	return err
}
