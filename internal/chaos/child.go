package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/persistence/badger"
)

// childVariable makes a process a life of a chaos run. Its value says nothing.
const childVariable = "TROUPE_CHAOS_LIFE"

// readyLine is what a life says once it answers on its socket.
const readyLine = "ready"

// Main is for the first line of a program, or a test binary, that can be a life of a run: it returns false
// at once in any other process. A life reads its configuration as one line from stdin, serves the
// socket of its data directory until stdin ends, and never returns to the program.
func Main() bool {
	if os.Getenv(childVariable) == "" {
		return false
	}
	if err := live(context.Background(), os.Stdin, os.Stdout); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err) // the parent reads it, if it lives
		os.Exit(1)                          //nolint:forbidigo // this process is the program
	}
	os.Exit(0) //nolint:forbidigo // this process is the program
	return true
}

// live is one life, from its configuration to the end of its input.
func live(ctx context.Context, in io.Reader, out io.Writer) error {
	r := bufio.NewReader(in)
	line, err := r.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the configuration of this life: %w", err)
	}
	var c lifeConfig
	if err := json.Unmarshal(line, &c); err != nil {
		return fmt.Errorf("read the configuration of this life: %w", err)
	}
	log, err := os.OpenFile(filepath.Join(filepath.Dir(c.Log), "runtime.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of this life: %w", err)
	}
	defer log.Close()
	logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn})).With("life", c.Life)
	store, err := badger.Open(ctx, storeOptions(c, logger))
	if err != nil {
		return err
	}
	house, err := openInside(ctx, c, store, logger, func(why string) { killSelf(logger, why) })
	if err != nil {
		return errors.Join(err, store.Close()) //nolint:contextcheck // it takes none, and bounds itself
	}
	err = serveUntil(ctx, c, house.rt, logger, r, out)
	return errors.Join(err, house.close(ctx), store.Close()) //nolint:contextcheck // Close takes none, and bounds itself
}

// storeOptions are those of the store of a lane: a ballast file would cost more than all the rest of a start.
func storeOptions(c lifeConfig, log *slog.Logger) badger.Options {
	return badger.Options{Dir: troupe.StoreDir(c.Data), Logger: log, Ballast: -1}
}

// killSelf ends this process as the kernel does, at once and without a word to anybody.
func killSelf(log *slog.Logger, why string) {
	log.Warn("killed", "message", why)
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill() // on failure the parent finds a process that hangs
	}
	select {} // nothing that follows may happen
}

// serveUntil answers on the socket until the parent says, by closing the input, that it is enough.
func serveUntil(ctx context.Context, c lifeConfig, rt *troupe.Runtime, log *slog.Logger, in io.Reader, out io.Writer) error {
	l, _, err := gateway.ListenSocket(c.Data) //nolint:contextcheck // it takes none: its one wait is bounded by itself
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, in) // its end is the message
		stop()
	}()
	if _, err := fmt.Fprintln(out, readyLine); err != nil {
		return errors.Join(fmt.Errorf("say that this life has begun: %w", err), l.Close())
	}
	return gateway.Serve(ctx, l, gateway.New(rt, gateway.Options{Logger: log}))
}
