package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

// settleTrust is the trust of a folder for a new session: what the flag says, else what was said before,
// else what a person on a terminal answers. Each folder is asked about once.
func (a *app) settleTrust(ctx context.Context, addr *workspace.Address, dir, flag string) (messages.Trust_Level, error) {
	switch {
	case flag == "full":
		return messages.Trust_FULL, nil
	case flag == "restricted":
		return messages.Trust_RESTRICTED, nil
	case a.trusted(addr):
		return messages.Trust_FULL, nil
	case !a.canAsk() || a.askedBefore(addr):
		return messages.Trust_RESTRICTED, nil
	}
	answer, err := a.question(ctx, fmt.Sprintf("May agents run every tool in %s unasked, commands included? [y: yes, from now on; o: this once; N: no] ", visible(dir)))
	if err != nil {
		return messages.Trust_RESTRICTED, err
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		if err := a.trustStore().Trust(addr, time.Now()); err != nil {
			return messages.Trust_RESTRICTED, &exitError{code: exitIO, what: err.Error(), err: err}
		}
		return messages.Trust_FULL, nil
	case "o", "once":
		return messages.Trust_FULL, nil
	}
	return messages.Trust_RESTRICTED, a.noteAsked(addr)
}

// people is what an input says of who can be asked in its turn: whoever sits at the terminal that it comes from, whatever the
// session was made with. Without a terminal it is as the session was made, unless --no-input says that nobody is.
func (a *app) people() messages.InputAccepted_People {
	switch {
	case a.canAsk():
		return messages.InputAccepted_ASKED
	case a.flags.noInput:
		return messages.InputAccepted_NOBODY
	}
	return messages.InputAccepted_AS_SESSION
}

// canAsk tells whether a person sits at the terminal and wants to be asked.
func (a *app) canAsk() bool { return a.inTerm && a.errTerm && !a.flags.noInput && !a.flags.quiet }

// asked is where it is kept that a folder was asked about and not trusted.
func (a *app) asked(addr *workspace.Address) string {
	return filepath.Join(config.Dirs(a.env).State, "asked", addr.ID())
}

func (a *app) askedBefore(addr *workspace.Address) bool {
	_, err := os.Stat(a.asked(addr))
	return !errors.Is(err, fs.ErrNotExist)
}

func (a *app) noteAsked(addr *workspace.Address) error {
	file := a.asked(addr)
	err := os.MkdirAll(filepath.Dir(file), 0o700)
	if err == nil {
		err = os.WriteFile(file, []byte(addr.Canonical+"\n"), 0o600)
	}
	if err != nil {
		return &exitError{code: exitIO, what: "remember the answer: " + err.Error(), err: err}
	}
	return nil
}

// question puts a question on the terminal and reads one line. The end of the input is an empty answer.
// A reader that waits is left behind when ctx ends, and ends with the process.
func (a *app) question(ctx context.Context, text string) (string, error) {
	a.forgetTyped()
	put := func() error {
		if _, err := io.WriteString(a.err, text); err != nil {
			return &exitError{code: exitIO, what: "ask on the terminal: " + err.Error(), err: err}
		}
		return nil
	}
	if s, ok := a.in.(*source); ok {
		return s.answer(ctx, put)
	}
	if err := put(); err != nil {
		return "", err
	}
	line := make(chan string, 1)
	go func() { line <- readLine(a.in) }()
	select {
	case answer := <-line:
		return answer, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// forgetTyped drops what was typed before a question stands on the terminal: it is no answer to it.
func (a *app) forgetTyped() {
	if s, ok := a.in.(*source); ok {
		s.forget()
	}
	if f, ok := a.in.(interface{ Fd() uintptr }); ok {
		forgetTyped(f.Fd())
	}
}

// readLine reads byte by byte, so that nothing after the line is taken from who reads next.
func readLine(in io.Reader) string {
	var line []byte
	for b := make([]byte, 1); len(line) < 1000; {
		n, err := in.Read(b)
		if err != nil || n == 1 && b[0] == '\n' {
			break
		}
		line = append(line, b[:n]...)
	}
	return string(line)
}
