package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// childVariable makes a process a part of a run: its value says which.
const childVariable = "TROUPE_BENCH_PART"

// What a process may be.
const (
	childModel = "model" // serves the script
	childLife  = "life"  // works until it is killed
)

// Main is for the first line of a program, or a test binary, that can be a part of a run: it returns false at once in any
// other process. A part ends with its stdin, and never returns to the program.
func Main() bool {
	part := os.Getenv(childVariable)
	if part == "" {
		return false
	}
	work := live
	if part == childModel {
		work = serveModel
	}
	ctx, stop := context.WithCancel(context.Background())
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	go func() {
		_, _ = io.Copy(io.Discard, in) // its end is the message
		stop()
	}()
	if err == nil {
		err = work(ctx, line, os.Stdout)
	}
	if err != nil && ctx.Err() == nil {
		_, _ = fmt.Fprintln(os.Stderr, err) // the parent reads it, if it lives
		os.Exit(1)                          //nolint:forbidigo // this process is the program
	}
	os.Exit(0) //nolint:forbidigo // this process is the program
	return true
}

// child is a process of this same program.
type child struct {
	cmd   *exec.Cmd
	input io.WriteCloser
	out   *bufio.Reader
	said  strings.Builder
}

// begin starts one, with a line of configuration.
func begin(ctx context.Context, part string, config any) (*child, error) {
	fail := func(err error) (*child, error) { return nil, fmt.Errorf("begin the process %s: %w", part, err) }
	self, err := os.Executable()
	if err != nil {
		return fail(err)
	}
	c := &child{cmd: exec.CommandContext(ctx, self)}
	c.cmd.Args = []string{os.Args[0]}
	c.cmd.Env = append(os.Environ(), childVariable+"="+part)
	c.cmd.Stderr = &c.said
	if c.input, err = c.cmd.StdinPipe(); err != nil {
		return fail(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return fail(err)
	}
	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		return fail(err)
	}
	line, err := json.Marshal(config)
	if err == nil {
		_, err = c.input.Write(append(line, '\n'))
	}
	if err != nil {
		c.kill()
		return fail(err)
	}
	return c, nil
}

// line is what the process says next.
func (c *child) line() (string, error) {
	line, err := c.out.ReadString('\n')
	if err != nil {
		c.kill()
		return "", fmt.Errorf("the process ended: %w: %s", err, strings.TrimSpace(c.said.String()))
	}
	return strings.TrimSpace(line), nil
}

// kill ends the process as the kernel does, and waits for that. It says whether it was that: a process that has ended by itself was not killed.
func (c *child) kill() (killed bool) {
	_ = c.cmd.Process.Kill() // it may have ended just now
	_, _ = io.Copy(io.Discard, c.out)
	_ = c.cmd.Wait() // it was killed
	return c.cmd.ProcessState != nil && !c.cmd.ProcessState.Exited()
}

// end lets the process end by itself.
func (c *child) end() {
	_ = c.input.Close() // the process may be gone
	_, _ = io.Copy(io.Discard, c.out)
	_ = c.cmd.Wait() // what it had to say, it has said
}
