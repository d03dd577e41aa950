package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// helperArg starts this program as the helper of one command. It is no command for people.
const helperArg = "__sandbox-helper"

// The helper's files besides the command's output.
const (
	controlFD = 3 // ends when the command shall end, or when the one who started it is dead
	statusFD  = 4 // takes helperStatus lines
)

// sweepEvery is how often the helper kills what is left until nothing is.
const sweepEvery = 2 * time.Millisecond

// helperStatus is what the helper tells: the command's pid when it runs, then how it ended.
type helperStatus struct {
	Child  int    `json:"child-pid,omitempty"`
	Code   *int   `json:"exit-code,omitempty"`
	Signal string `json:"signal,omitempty"`
	Error  string `json:"error,omitempty"`
}

// Main must be called first thing in main, and in TestMain, of a program that sets
// Options.Reexec. It returns false at once unless the process was started as the helper of a
// command in mode none or landlock, or as the guard of those in mode bwrap: then it does that
// work and ends the process.
//
// The helper adopts whatever its command leaves behind (it is a subreaper), and kills all of it
// when the command ends, when asked, or when the process that started it is gone.
func Main() bool {
	if len(os.Args) < 3 {
		return false
	}
	work := map[string]func(args []string, status *os.File) error{
		helperArg: help, guardArg: watchOver, confineArg: helpConfined, initArg: first, enterArg: enter,
	}[os.Args[1]]
	if work == nil {
		return false
	}
	status := os.NewFile(statusFD, "status")
	err := work(os.Args[2:], status)
	var code exitCode
	switch {
	case errors.As(err, &code):
		os.Exit(int(code))
	case err != nil:
		_ = json.NewEncoder(status).Encode(helperStatus{Error: err.Error()})
		os.Exit(1)
	}
	os.Exit(0)
	return true
}

func help(argv []string, status *os.File) error {
	group := entrances()
	return lookAfter(status, func() (*os.Process, error) {
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
			return nil, fmt.Errorf("hide the memory: %w", err)
		}
		p, err := os.StartProcess(argv[0], argv, &os.ProcAttr{
			Files: withEntrances([]*os.File{os.Stdin, os.Stdout, os.Stderr}, group),
			Env:   os.Environ(),
			Sys:   dyingWithUs(&syscall.SysProcAttr{Setsid: true}),
		})
		if err != nil {
			return nil, fmt.Errorf("start %s: %w", argv[0], err)
		}
		return p, nil
	})
}

// lookAfter does a helper's work for the process that start starts.
func lookAfter(status *os.File, start func() (*os.Process, error)) error {
	runtime.LockOSThread() // with its end the command ends
	for _, fd := range []int{controlFD, statusFD} {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
			return fmt.Errorf("close file %d on exec: %w", fd, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a subreaper: %w", err)
	}
	p, err := start()
	if err != nil {
		return err
	}
	out := json.NewEncoder(status)
	_ = out.Encode(helperStatus{Child: p.Pid}) // nobody listens when the one who started us is dead: then control has ended
	end := make(chan struct{}, 2)
	go func() {
		_, _ = os.NewFile(controlFD, "control").Read(make([]byte, 1))
		end <- struct{}{}
	}()
	go sweep(p.Pid, end)
	return reap(p.Pid, out, end)
}

// reap waits for every process below until none is left.
func reap(child int, out *json.Encoder, end chan<- struct{}) error {
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ECHILD):
			return nil
		case err != nil:
			return fmt.Errorf("wait for the command: %w", err)
		case pid == child:
			s := helperStatus{Code: new(int)}
			*s.Code = ws.ExitStatus()
			if ws.Signaled() {
				*s.Code, s.Signal = 128+int(ws.Signal()), unix.SignalName(ws.Signal())
			}
			_ = out.Encode(s)
			end <- struct{}{}
		}
	}
}

// sweep kills, once told to, all that is below, again and again: new ones may appear while it
// looks. Whole groups go first, at one stroke: a fork bomb outruns a list.
func sweep(child int, end <-chan struct{}) {
	<-end
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for ; ; <-tick.C {
		_ = unix.Kill(-child, unix.SIGKILL)
		pids := descendants(os.Getpid(), 1<<20)
		ours := make(map[int]bool, len(pids))
		for _, pid := range pids {
			ours[pid] = true
		}
		for _, pid := range pids {
			// A group is killed only if one of ours founded it.
			if group, err := unix.Getpgid(pid); err == nil && ours[group] {
				_ = unix.Kill(-group, unix.SIGKILL)
			}
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}
