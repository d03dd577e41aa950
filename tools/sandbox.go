package tools

import (
	"context"
	"io"
	"time"
)

// Sandbox runs commands for tools. Back ends live in tools/sandbox. It is safe for concurrent
// use: commands of different calls run side by side.
type Sandbox interface {
	// Name is the back end's: `bwrap`, `landlock`, `none`. It is reported in `meta.sandbox`.
	Name() string
	// Confines tells whether a command is kept from what lies outside its workspace. A
	// Restricted workspace runs nothing in a sandbox that does not (fail closed).
	Confines() bool
	// Run runs a command to its end and returns what came of it. When it returns, no process
	// that the command started is left, whatever the outcome. The error is about the sandbox
	// (it could not start the command) or ctx's; a command that fails is an Exit.
	Run(ctx context.Context, cmd Command) (Exit, error)
}

// Command is one command for a Sandbox. Argv, Workspace and Output are required.
type Command struct {
	Argv      []string // the program, found on PATH of Env, and its arguments; no shell
	Workspace string   // host folder that the command may change
	Dir       string   // host folder where it starts, at or below Workspace; "": Workspace
	Env       []string // NAME=value; nothing else is inherited. HOME is the sandbox's to set
	Temp      string   // host folder for temporary files; may be ""
	Network   bool     // whether it may use the network
	ReadOnly  bool     // it may change neither Workspace nor HOME, in a sandbox that confines
	MaxOutput int64    // bytes after which it is killed; 0: unlimited

	// Output gets standard output and standard error as they come, from one goroutine, and no
	// byte beyond MaxOutput. Standard input is empty.
	Output io.Writer
}

// Exit is how a command ended.
type Exit struct {
	Code     int           // exit code; 128+n when signal n ended it
	Signal   string        // e.g. "SIGKILL"; "" when it exited by itself
	Limit    string        // why the sandbox killed it: `output`, `memory`, `processes`, or ""
	Bounds   string        // what held the limits of memory and processes: `cgroup`, `watch`, `container`, or ""
	Duration time.Duration // from the start to the end of the last process
}
