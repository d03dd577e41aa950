package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
)

const (
	// crashPrefix begins the name of the file, in the data directory, into which a process that holds it writes what it dies of. Each has its own: one
	// that is about to end may still have the last one's lock when the next one looks.
	crashPrefix = "crash-"
	// lastCrash is where the next process keeps it.
	lastCrash = "crash.txt"
	// crashRoom is taken on the disk beforehand, in bytes: what ends the process may be a full one.
	crashRoom = 256 << 10
	// crashHead is how much of it is looked at, in bytes.
	crashHead = 4 << 10
	// crashMost is how much of it is kept, in bytes: its beginning says why, the rest is what each goroutine was about.
	crashMost = 16 << 20
)

// watchCrash says what the process before this one died of, and has the Go runtime write down what this one dies of. A signal that
// a full disk sends for a page without a block is no error that somebody could return (ADR 26).
func (h *house) watchCrash() {
	entries, err := os.ReadDir(h.data)
	if err != nil {
		h.log.logger.Warn("look for what a crash left", "path", h.data, "err", err)
		return
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), crashPrefix) && e.Type().IsRegular() {
			h.tellCrash(filepath.Join(h.data, e.Name()))
		}
	}
	h.crash = filepath.Join(h.data, crashPrefix+strconv.Itoa(os.Getpid()))
	f, err := os.OpenFile(h.crash, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		h.log.logger.Warn("a crash will not be written down", "path", h.crash, "err", err)
		h.crash = ""
		return
	}
	defer f.Close() // the runtime has its own
	if err := takeRoom(f, crashRoom); err != nil {
		h.log.logger.Warn("a crash may find no room to be written down", "path", h.crash, "err", err)
	}
	if err := debug.SetCrashOutput(f, debug.CrashOptions{}); err != nil {
		h.log.logger.Warn("a crash will not be written down", "path", h.crash, "err", err)
	}
}

// endCrash is for a process that ends in order.
func (h *house) endCrash() {
	if h.crash == "" {
		return
	}
	_ = debug.SetCrashOutput(nil, debug.CrashOptions{}) // closes a file
	h.removeCrash(h.crash)
	h.crash = ""
}

// removeCrash takes away a file for a crash. Another process may have done so.
func (h *house) removeCrash(path string) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		h.log.logger.Warn("the file for a crash stays", "path", path, "err", err)
	}
}

// tellCrash keeps what a crash left, and tells a person. A process that was killed leaves an empty file. What cannot be read stays where it is.
func (h *house) tellCrash(path string) {
	head, err := headOf(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err != nil:
		h.log.logger.Warn("what a crash left cannot be read", "path", path, "err", err)
		h.note("troupe: warning: the process before this one may have crashed; what it said cannot be read: %s", visible(err.Error()))
		return
	case head == "":
		h.removeCrash(path)
		return
	}
	kept := filepath.Join(h.data, lastCrash)
	if err := h.keepCrash(path, kept); err != nil {
		h.log.logger.Warn("keep what a crash left", "path", path, "err", err)
		kept = path
	} else {
		h.removeCrash(path)
	}
	head = h.secrets.String(head)
	first, _, _ := strings.Cut(head, "\n")
	h.log.logger.Warn("the process before this one crashed", "path", kept, "err", first)
	if strings.Contains(head, "SIGBUS") {
		h.note("troupe: the process before this one was ended by the disk, which had no room left or failed (SIGBUS); what was acknowledged is kept; see troupe doctor, and %s", visible(kept))
		return
	}
	h.note("troupe: the process before this one crashed (%s); what was acknowledged is kept; what it said is in %s", oneLine(first, 200), visible(kept))
}

// keepCrash copies what a crash left, without the secrets that this process knows: the runtime wrote it past everything that takes them out. The
// copy is there whole or not at all.
func (h *house) keepCrash(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	half := to + ".new"
	if err := os.Remove(half); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a process that was ended here
		return err
	}
	out, err := os.OpenFile(half, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	w := h.secrets.Writer(out)
	_, err = io.Copy(w, io.LimitReader(in, crashMost))
	if err = errors.Join(err, w.Flush(), out.Close()); err == nil {
		err = os.Rename(half, to)
	}
	if err != nil {
		return errors.Join(err, os.Remove(half))
	}
	return nil
}

// headOf is the beginning of what a process said when it crashed, "" when it said nothing.
func headOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, crashHead))
	if err != nil {
		return "", err
	}
	return strings.TrimLeft(string(b), "\x00\n"), nil
}
