//go:build unix

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Who waits for the other end of a pipe can end that: an open of it cannot be ended.
func TestAPipeThatGivesNothingDoesNotKeepACommand(t *testing.T) {
	name := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := given(ctx, name, 10); !errors.Is(err, context.Canceled) {
		t.Errorf("it is read with %v", err)
	}
	f, err := os.OpenFile(name, os.O_WRONLY, 0) // the end that the one who reads waits for
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
