package main

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/badger"
)

// counting is a store that counts what is read and what snapshots cost.
type counting struct {
	*badger.Store
	whole bool // there are no snapshots to read

	records   atomic.Int64 // read
	snapshots atomic.Int64 // written
	bytes     atomic.Int64 // of them
	writing   atomic.Int64 // nanoseconds until they were durable
}

// Read counts what it gives.
func (c *counting) Read(ctx context.Context, stream string, from uint64, fn func(persistence.Entry) error) error {
	return c.Store.Read(ctx, stream, from, func(e persistence.Entry) error {
		c.records.Add(1)
		return fn(e)
	})
}

// Snapshot finds none when everything is to be folded.
func (c *counting) Snapshot(ctx context.Context, stream string, below uint64) (*messages.Snapshot, error) {
	if c.whole {
		return nil, persistence.ErrNotFound
	}
	return c.Store.Snapshot(ctx, stream, below)
}

// PutSnapshot counts what it keeps.
func (c *counting) PutSnapshot(ctx context.Context, l persistence.Lease, s *messages.Snapshot) error {
	began := time.Now()
	err := c.Store.PutSnapshot(ctx, l, s)
	c.snapshots.Add(1)
	c.bytes.Add(int64(proto.Size(s)))
	c.writing.Add(int64(time.Since(began)))
	return err
}
