package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/model/script"
)

// childVariable makes this test binary a server: its value is the data directory.
const childVariable = "TROUPE_E2E_SERVER"

// child is a server in a process of its own.
type child struct {
	t       *testing.T
	cmd     *exec.Cmd
	in      io.Closer // its end is the server's
	address string
}

// begin starts one on a data directory. What it says is its address, once it answers.
func begin(t *testing.T, data string) *child {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env, cmd.Stderr = append(os.Environ(), childVariable+"="+data), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: cmd, in: in}
	t.Cleanup(c.kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the server says nothing: %v", err)
	}
	c.address = strings.TrimSpace(line)
	return c
}

// kill ends it as the kernel does, if it has not ended.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // it may have ended
	_ = c.cmd.Wait()
}

// end lets it stop in order.
func (c *child) end() {
	c.t.Helper()
	if err := errors.Join(c.in.Close(), c.cmd.Wait()); err != nil {
		c.t.Errorf("the server ended with %v", err)
	}
}

// resident is the memory of the process, in KiB; 0 where the system does not tell.
func (c *child) resident() float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmRSS:" {
			kb, _ := strconv.ParseFloat(f[1], 64) // 0 is "not told"
			return kb
		}
	}
	return 0
}

// serveAsChild is the server, until its input ends.
func serveAsChild(data string) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	s, err := script.Parse("plot.yaml", []byte(plot))
	if err != nil {
		return err
	}
	rt, err := troupe.New(ctx, troupe.Options{Model: s.Model(), DataDir: data})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // its end is the message
		stop()
	}()
	fmt.Println(l.Addr())
	return errors.Join(gateway.Serve(ctx, l, gateway.New(rt, gateway.Options{})), rt.Close(context.Background()))
}
