package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/client"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/badger"
)

// processHost runs each life as a process of its own, on a data directory. It is this same program.
type processHost struct{}

// Begin starts a process and waits until it answers on its socket.
func (processHost) Begin(ctx context.Context, c lifeConfig) (life, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	l := &processLife{data: c.Data, over: make(chan struct{}), said: &tail{}}
	l.cmd = exec.CommandContext(ctx, self)
	l.cmd.Args = []string{os.Args[0]}
	l.cmd.Env = append(os.Environ(), childVariable+"=1")
	l.cmd.Stderr = l.said
	if l.input, err = l.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("begin life %d: %w", c.Life, err)
	}
	out, err := l.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("begin life %d: %w", c.Life, err)
	}
	if err := l.cmd.Start(); err != nil {
		return nil, fmt.Errorf("begin life %d: %w", c.Life, err)
	}
	line, err := json.Marshal(c)
	if err == nil {
		_, err = l.input.Write(append(line, '\n'))
	}
	ready := err == nil && awaitReady(out)
	go l.wait(out)
	if !ready { // it died while it began: that is how it ended
		<-l.over
		return l, err
	}
	if l.Client, err = client.Dial(ctx, c.Data); err == nil {
		return l, nil
	}
	bound := time.NewTimer(dialWait)
	defer bound.Stop()
	select {
	case <-l.over: // it has died since
		return l, nil
	case <-bound.C:
	}
	l.Kill()
	<-l.over
	return nil, fmt.Errorf("life %d does not answer: %w", c.Life, err)
}

// dialWait is how long a process that does not answer may take to be dead.
const dialWait = 30 * time.Second

func awaitReady(out io.Reader) bool {
	line, err := bufio.NewReader(out).ReadString('\n')
	return err == nil && strings.TrimSpace(line) == readyLine
}

// Store opens the data directory in this process.
func (processHost) Store(ctx context.Context, c lifeConfig) (persistence.Store, error) {
	o := storeOptions(c, nil)
	return badger.Open(ctx, o)
}

// processLife is a process and the client that talks to it. The client is nil when it never answered.
type processLife struct {
	*client.Client
	data  string
	cmd   *exec.Cmd
	input io.WriteCloser
	said  *tail
	over  chan struct{}

	mu     sync.Mutex
	killed bool // by this process
	asked  bool // to end
	end    ending
	person *client.Client // nil: nobody has asked for it
}

// wait learns how the process ended.
func (l *processLife) wait(out io.Reader) {
	_, _ = io.Copy(io.Discard, out) // so that Wait may close it
	err := l.cmd.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.killed:
		l.end.at = outside
	case l.asked && err == nil:
		l.end.at = orderly
	case killed(l.cmd.ProcessState, l.said):
		l.end.at = unheard // it killed itself, as the plan says
	default:
		l.end = ending{byItself, fmt.Errorf("%w: %s", errors.Join(err, errEndedItself), l.said)}
	}
	close(l.over)
}

var errEndedItself = errors.New("the runtime ended though nobody asked it to")

// killed tells a kill from an exit: there is no exit code, or, on Windows, the one of a failure without a word.
func killed(s *os.ProcessState, said *tail) bool {
	return s.ExitCode() == -1 || s.ExitCode() == 1 && said.String() == ""
}

// Person implements life.
func (l *processLife) Person(ctx context.Context) (node, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.person != nil {
		return l.person, nil
	}
	c, err := client.Dial(ctx, l.data)
	if err != nil {
		return nil, err
	}
	l.person = c
	return c, nil
}

// Over implements life.
func (l *processLife) Over() <-chan struct{} { return l.over }

// Kill implements life.
func (l *processLife) Kill() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.over:
	default:
		l.killed = true
		_ = l.cmd.Process.Kill() // it may have ended just now
	}
}

// Close implements life.
func (l *processLife) Close(ctx context.Context) error {
	l.mu.Lock()
	l.asked = true
	if l.person != nil {
		_ = l.person.Close() // never fails
	}
	l.mu.Unlock()
	if l.Client != nil {
		_ = l.Client.Close() // never fails
	}
	_ = l.input.Close() // the process may be gone
	select {
	case <-l.over:
	case <-ctx.Done():
		l.Kill()
		<-l.over
	}
	return nil
}

// End implements life.
func (l *processLife) End() ending {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end
}

// tail keeps the end of what a process says.
type tail struct {
	mu sync.Mutex
	b  []byte
}

// Write keeps the last 4 KiB.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, b...)
	if n := len(t.b) - 4096; n > 0 {
		t.b = append([]byte(nil), t.b[n:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.b))
}
