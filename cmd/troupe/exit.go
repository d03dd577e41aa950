package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/pipeline"
	"github.com/troupe-dev/troupe/workspace"
)

// The exit codes. They are the same for all commands; `troupe help exit-codes` prints exitTable.
const (
	exitDone        = 0
	exitFailed      = 1
	exitPartial     = 2
	exitBudget      = 3
	exitUsage       = 64
	exitInput       = 65
	exitMissing     = 66
	exitUnreachable = 69
	exitIO          = 74
	exitAgain       = 75
	exitDenied      = 77
	exitConfig      = 78
	exitTimeout     = 124
	exitInterrupted = 130
)

// exitMeaning is one line of the table of exit codes.
type exitMeaning struct {
	Code    int    `json:"code"`
	Outcome string `json:"outcome"` // of a turn, where one ends so
	Meaning string `json:"meaning"`
}

func exitTable() []exitMeaning {
	return []exitMeaning{
		{exitDone, "done", "done"},
		{exitFailed, "error", "failed"},
		{exitPartial, "limit, stuck", "gave up, or done in part"},
		{exitBudget, "budget", "the budget is used up"},
		{exitUsage, "", "the command line is wrong"},
		{exitInput, "", "an input is malformed"},
		{exitMissing, "", "no such file, folder or id"},
		{exitUnreachable, "", "the server cannot be reached"},
		{exitIO, "", "input or output failed, or a port is taken"},
		{exitAgain, "waiting", "try again later"},
		{exitDenied, "", "denied"},
		{exitConfig, "", "the configuration is wrong, or something is not configured"},
		{exitTimeout, "timeout", "it took too long"},
		{exitInterrupted, "aborted", "interrupted"},
	}
}

// exitError is an error that knows how the process ends.
type exitError struct {
	code int
	what string // what failed, with the value and where it came from; "" prints nothing
	hint string // what to do
	data any    // for -o json and yaml: the problem as an object on stdout
	err  error  // the cause; may be nil
}

func (e *exitError) Error() string { return e.what }
func (e *exitError) Unwrap() error { return e.err }

// usage is an error in the command line.
func usage(format string, args ...any) *exitError {
	return &exitError{code: exitUsage, what: fmt.Sprintf(format, args...)}
}

// silent ends the process with a code when everything was said already.
func silent(code int) error {
	if code == exitDone {
		return nil
	}
	return &exitError{code: code}
}

// classify finds the exit code of an error that does not carry one.
func classify(err error) *exitError {
	var own *exitError
	if errors.As(err, &own) {
		return own
	}
	e := &exitError{code: exitFailed, what: err.Error(), err: err}
	var problems config.Problems
	var problem *config.Problem
	var unknown *config.UnknownModelError
	var address *workspace.AddressError
	var wrong pipeline.Problems
	var refused *messages.Failure
	switch {
	case errors.As(err, &problems), errors.As(err, &problem):
		e.code, e.hint = exitConfig, "check it with: troupe config validate"
	case errors.As(err, &wrong):
		e.code, e.what = exitInput, "the pipeline is wrong\n"+wrong.Error()
	case errors.As(err, &unknown):
		e.code, e.hint = exitConfig, "models are named PROVIDER/NAME or by an alias; see troupe config show"
	case errors.Is(err, config.ErrNoModel):
		e.code, e.hint = exitConfig, config.NoModelHelp
	case errors.As(err, &address):
		e.code = exitInput
	case errors.As(err, &refused):
		e.code, e.what, e.hint = refusalCode(refused), refused.GetMessage(), refused.GetHint()
	case errors.Is(err, context.Canceled):
		e.code = exitInterrupted
	case errors.Is(err, context.DeadlineExceeded):
		e.code = exitTimeout
	case errors.Is(err, fs.ErrNotExist):
		e.code = exitMissing
	case errors.Is(err, fs.ErrPermission), errors.As(err, new(*fs.PathError)):
		e.code = exitIO
	}
	return e
}

// refusalCode is the exit code of what the runtime refused.
func refusalCode(f *messages.Failure) int {
	switch f.GetCode() {
	case messages.CodeNotFound, messages.CodeNoTurn, messages.CodeTrimmed, messages.CodeNoWorkspace, messages.CodeFieldNotFound:
		return exitMissing
	case messages.CodeBadRequest, messages.CodeInvalidURI, messages.CodeInvalidPath, messages.CodeTooLarge, messages.CodeConflict, messages.CodeAlreadyExists, messages.CodeValidationFailed:
		return exitInput
	case messages.CodeFieldReadOnly:
		return exitDenied
	case messages.CodeBusy, messages.CodeUnavailable, messages.CodeStaleLease, messages.CodeClosed, messages.CodeRate:
		return exitAgain
	case messages.CodeModel, messages.CodeAgent, messages.CodeSandbox:
		return exitConfig
	case messages.CodeNetwork:
		return exitUnreachable
	case messages.CodeNetworkDenied, messages.CodeDenied, messages.CodeUnauthorized, messages.CodeForbidden:
		return exitDenied
	case messages.CodeTimeout:
		return exitTimeout
	case messages.CodeCorrupt, messages.CodeFull:
		return exitIO
	case messages.CodeWithdrawn:
		return exitInterrupted
	}
	return exitFailed
}

// outcomeCode is the exit code of a turn's outcome.
func outcomeCode(outcome string) int {
	for _, m := range exitTable() {
		for _, o := range strings.Split(m.Outcome, ", ") {
			if o == outcome && o != "" {
				return m.Code
			}
		}
	}
	return exitFailed
}

// without gives the error without the secrets that are known.
func (e *exitError) without(secrets *config.Redactor) *exitError {
	clean := *e
	clean.what, clean.hint = secrets.String(e.what), secrets.String(e.hint)
	return &clean
}

// render prints an error for people: what failed, then indented what to do.
func (e *exitError) render(w io.Writer, s style) {
	if e.what == "" {
		return
	}
	text := s.bad("troupe:") + " " + visible(e.what) + "\n"
	if e.hint != "" {
		text += "  " + strings.ReplaceAll(visible(e.hint), "\n", "\n  ") + "\n"
	}
	_, _ = io.WriteString(w, text) // nobody is left to be told
}
