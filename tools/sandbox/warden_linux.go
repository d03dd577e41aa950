package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// guardArg starts this program as a guard. It is no command for people.
const guardArg = "__sandbox-guard"

// guardSocket is the guard's file that commands come by. Its end is the end of the guard.
const guardSocket = 3

// warden is what the guard does: it starts each bwrap that it is told to, ends it when its
// control ends, and kills what bwrap leaves behind, which the kernel gives to it (it is a
// subreaper). A child of its own that it did not start has no right to live.
type warden struct {
	null *os.File

	mu      sync.Mutex // held while a child is started, reaped or killed: a pid means the same throughout
	started *sync.Cond
	wards   map[int]*warded
}

// warded is one bwrap.
type warded struct {
	control, status *os.File
}

// watchOver does the work of the guard until the process that started it is gone.
func watchOver([]string, *os.File) error {
	runtime.LockOSThread() // the one whose end is the end of each bwrap
	unix.CloseOnExec(guardSocket)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a subreaper: %w", err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	w := &warden{null: null, wards: map[int]*warded{}}
	w.started = sync.NewCond(&w.mu)
	go w.reap()
	defer w.endAll()
	rights := make([]byte, unix.CmsgSpace(4*(wardFiles+groupsAtTop)))
	for {
		n, have, _, _, err := unix.Recvmsg(guardSocket, make([]byte, 1), rights, unix.MSG_CMSG_CLOEXEC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil || n == 0:
			return err
		}
		files, group, err := received(rights[:have])
		if err != nil {
			return err
		}
		w.start(files, group)
	}
}

func received(rights []byte) (files [wardFiles]*os.File, group []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil || len(messages) != 1 {
		return files, nil, fmt.Errorf("receive files: %d messages: %w", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) < wardFiles {
		return files, nil, fmt.Errorf("receive files: %d of them: %w", len(fds), err)
	}
	_ = unix.SetNonblock(fds[wardControl], true) // so that waiting for its end takes no thread
	for i, fd := range fds {
		if f := os.NewFile(uintptr(fd), "received"); i < wardFiles {
			files[i] = f
		} else {
			group = append(group, f)
		}
	}
	return files, group, nil
}

// start starts one bwrap. That it could not is told as its status.
func (w *warden) start(files [wardFiles]*os.File, group []*os.File) {
	one := &warded{control: files[wardControl], status: files[wardStatus]}
	defer func() {
		for _, i := range []int{wardArgv, wardOutput, wardOptions} {
			files[i].Close()
		}
		for _, f := range group {
			f.Close()
		}
	}()
	argv, err := readArgv(files[wardArgv])
	w.mu.Lock()
	defer w.mu.Unlock()
	var p *os.Process
	if err == nil {
		p, err = os.StartProcess(argv[0], argv, &os.ProcAttr{
			Dir: "/", Env: []string{}, // see bwrap.Run
			Files: withEntrances([]*os.File{w.null, files[wardOutput], files[wardOutput], files[wardOptions], files[wardStatus]}, group),
			Sys:   &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
		})
	}
	if err != nil {
		_ = json.NewEncoder(one.status).Encode(bwrapStatus{Error: err.Error()})
		one.close()
		return
	}
	pid := p.Pid
	_ = p.Release()
	w.wards[pid] = one
	w.started.Signal()
	go func() {
		_, _ = one.control.Read(make([]byte, 1))
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.wards[pid] == one {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}()
}

func (o *warded) close() {
	o.control.Close()
	o.status.Close()
}

// reap tells how each bwrap ended and kills what it left behind.
func (w *warden) reap() {
	for {
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil)
		w.mu.Lock()
		if errors.Is(err, unix.ECHILD) {
			for len(w.wards) == 0 {
				w.started.Wait()
			}
		}
		for {
			var ws unix.WaitStatus
			pid, err := unix.Wait4(-1, &ws, unix.WNOHANG, nil)
			if err != nil || pid <= 0 {
				break
			}
			if one := w.wards[pid]; one != nil {
				delete(w.wards, pid)
				w.kill(false) // before anybody hears of the end
				_ = json.NewEncoder(one.status).Encode(bwrapStatus{Ended: ended(ws)})
				one.close()
			}
		}
		w.mu.Unlock()
	}
}

func ended(ws unix.WaitStatus) string {
	if ws.Signaled() {
		return "signal: " + unix.SignalName(ws.Signal())
	}
	return fmt.Sprintf("exit status %d", ws.ExitStatus())
}

// kill kills all children, or those that were not started here, and says how many there are.
func (w *warden) kill(all bool) (n int) {
	for _, pid := range children(os.Getpid()) {
		if all || w.wards[pid] == nil {
			_ = unix.Kill(pid, unix.SIGKILL)
			n++
		}
	}
	return n
}

// endAll ends every bwrap and whatever comes to light with that.
func (w *warden) endAll() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for ; ; <-tick.C {
		w.mu.Lock()
		left := w.kill(true)
		w.mu.Unlock()
		if left == 0 {
			return
		}
	}
}
