package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// guard is our side of a process that starts bwrap for us. bwrap binds its child to its own life
// only when the child has set itself up: killed before that, as the kernel does to it when this
// process is killed, it leaves the child behind, to wait for ever or, later, to run the command.
// The guard outlives us for as long as it takes to end both. It ends when we do, or when nobody
// holds the guard any more.
type guard struct {
	mark string // an argument that says in lists of processes whose it is

	mu sync.Mutex
	p  *guardProcess // nil: none was started, or it is gone
}

// guardProcess is a guard that runs.
type guardProcess struct {
	socket int
	cmd    *exec.Cmd
}

// The order of files in a message to the guard. The first holds the command line.
const (
	wardArgv = iota
	wardOutput
	wardControl // ends when the command shall end
	wardStatus
	wardOptions
	wardFiles
)

// start starts the process, so that it gets ready while we do other things.
func (g *guard) start() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ready()
}

func (g *guard) ready() error {
	if g.p != nil {
		return nil
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a socket to the guard: %w", err)
	}
	theirs := os.NewFile(uintptr(ends[1]), "guard")
	defer theirs.Close()
	cmd := exec.Command("/proc/self/exe", guardArg, g.mark)
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no Ctrl-C of ours, and no death with us
	if err := cmd.Start(); err != nil {
		unix.Close(ends[0])
		return fmt.Errorf("start the guard: %w", err)
	}
	g.p = &guardProcess{socket: ends[0], cmd: cmd}
	runtime.AddCleanup(g, (*guardProcess).end, g.p)
	return nil
}

// end lets the process go and reaps it.
func (p *guardProcess) end() {
	if p.socket >= 0 {
		unix.Close(p.socket)
		p.socket = -1
		_ = p.cmd.Wait()
	}
}

// send hands a command over, to a new guard when somebody has killed the one that was.
func (g *guard) send(files [wardFiles]*os.File, group []*os.File) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var fds []int
	for _, f := range append(files[:], group...) {
		fds = append(fds, int(f.Fd()))
	}
	for again := true; ; again = false {
		if err := g.ready(); err != nil {
			return err
		}
		err := unix.Sendmsg(g.p.socket, []byte{0}, unix.UnixRights(fds...), nil, unix.MSG_NOSIGNAL)
		if err == nil {
			return nil
		}
		if !again || !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
			return fmt.Errorf("hand the command to the guard: %w", err)
		}
		g.p.end()
		g.p = nil
	}
}

// ward is one bwrap below the guard.
type ward struct {
	g       *guard
	argv    []string
	options *os.File
	group   []*os.File      // by which the command enters its control group
	status  *os.File        // for writing
	ended   <-chan struct{} // closed when the status has come to its end

	once    sync.Once
	control *os.File // closing it ends bwrap and its child
}

func (w *ward) start(out *os.File) error {
	argv, err := inMemory("argv", strings.Join(w.argv, "\x00"))
	if err != nil {
		return fmt.Errorf("write the command line: %w", err)
	}
	defer argv.Close()
	control, ours, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("open a pipe to the guard: %w", err)
	}
	defer control.Close()
	err = w.g.send([wardFiles]*os.File{wardArgv: argv, wardOutput: out, wardControl: control, wardStatus: w.status, wardOptions: w.options}, w.group)
	if err != nil {
		ours.Close()
		return err
	}
	w.control = ours
	return nil
}

func (w *ward) wait() { <-w.ended }

func (w *ward) end() { w.once.Do(func() { w.control.Close() }) }

// inMemory is a file in memory, to be read from its start.
func inMemory(name, text string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create a file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err = f.WriteString(text); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// readArgv takes a command line from such a file.
func readArgv(f *os.File) ([]string, error) {
	b, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("read the command line: %w", err)
	}
	var argv []string
	for arg := range bytes.SplitSeq(b, []byte{0}) {
		argv = append(argv, string(arg))
	}
	return argv, nil
}
