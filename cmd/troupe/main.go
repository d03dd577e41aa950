// Command troupe is the whole program: command line, server, console and scripted model.
//
// main only joins the process to the rest: everything below works on an app, which holds the
// streams, the environment and the working directory, so that no command reads a global.
// One subcommand is one file; newRoot lists them.
package main

import (
	"context"
	"os"

	"github.com/troupe-dev/troupe/internal/bench"
	"github.com/troupe-dev/troupe/internal/chaos"
	"github.com/troupe-dev/troupe/tools/sandbox"
)

func main() {
	if sandbox.Main() { // this process is the helper of a command that an agent runs
		return
	}
	if chaos.Main() { // this process is a life of a run of `troupe chaos`
		return
	}
	if bench.Main() { // this process is a part of a run of `troupe bench`
		return
	}
	os.Exit(execute(context.Background(), processApp(), os.Args[1:]))
}
