//go:build !linux

package sandbox

import (
	"context"

	"github.com/troupe-dev/troupe/tools"
)

// Main must be called first thing in main, and in TestMain, of a program that sets
// Options.Reexec. Helpers exist on Linux alone: here it always returns false.
func Main() bool { return false }

func newBwrap(context.Context, Options) (tools.Sandbox, error) {
	return nil, &Unavailable{Bwrap, "bubblewrap exists on Linux alone", "use a workspace on a Linux machine"}
}

func newLandlock(context.Context, Options) (tools.Sandbox, error) {
	return nil, &Unavailable{Landlock, "landlock exists on Linux alone", "use a workspace on a Linux machine"}
}

func newContainer(context.Context, Options) (tools.Sandbox, error) {
	return nil, &Unavailable{Container, "containers are used on Linux alone", "use a workspace on a Linux machine"}
}

// canWatch says that processes and memory of a command are counted.
const canWatch = false

func watchTree(func() int, Limits, <-chan struct{}, func(string)) {}

// machineMemory is not asked for here: nothing watches it.
func machineMemory() int64 { return 8 << 30 }
