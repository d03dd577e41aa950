package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/client"
	"github.com/troupe-dev/troupe/messages"
)

func newStop(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "stop",
		Short: "End the server of the data directory in order, and wait for it",
		Long: `End the server of the data directory in order, and wait for it.

Turns may end for server.grace; what is open then goes on at the next start. With --server the one there is ended, which
needs scope admin.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.stop(cmd.Context()) },
	}
}

func (a *app) stop(ctx context.Context) error {
	loaded, err := a.load("")
	if err != nil {
		return err
	}
	dir, url := loaded.Config.Data.Dir, loaded.Config.Server.URL
	var c *client.Client
	if url != "" {
		c, err = a.connect(ctx, loaded)
	} else if c, err = client.Dial(ctx, dir); errors.Is(err, client.ErrNoHolder) {
		a.note("troupe: no server holds %s", visible(dir))
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // it has nothing that could be lost
	pid := 0
	if who, err := ask[*messages.Holder](ctx, c, &messages.Hello{}); err == nil {
		pid = int(who.GetPid())
	}
	if err := c.Stop(ctx); err != nil {
		return err
	}
	if err := ended(ctx, c, dir, url == ""); err != nil {
		return err
	}
	a.note("troupe: the server (process %d) has ended", pid)
	return nil
}

// ended waits until the server answers no longer, and, on this machine, has given its data directory up.
func ended(ctx context.Context, c *client.Client, dir string, here bool) error {
	tick := time.NewTicker(holderPoll)
	defer tick.Stop()
	for gone := false; ; {
		if !gone {
			_, err := ask[*messages.Holder](ctx, c, &messages.Hello{})
			gone = err != nil && !errors.As(err, new(*messages.Failure))
		}
		if gone && (!here || holder(dir) == 0) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the end of the server: %w", context.Cause(ctx))
		}
	}
}
