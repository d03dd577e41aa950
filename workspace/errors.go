package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

// The codes of errors of this package: the same words as in tool results and on the wire.
const (
	CodeInvalidPath = "invalid_path"
	CodeInvalidURI  = "invalid_uri"
	CodeDenied      = "permission_denied"
	CodeNotFound    = "file_not_found"
	CodeTooLarge    = "file_too_large"
	CodeChanged     = "concurrent_modification"
	CodeUnavailable = "workspace_not_available"
	CodeInternal    = "internal_error"
	CodeExists      = "invalid_arguments" // something is where the call must not overwrite
)

// Error is a refused or failed access. It never holds a path of the machine: Path is what the
// caller wrote or the name below the root.
type Error struct {
	Op     string // read, write, make, remove, move, list
	Code   string
	Path   string
	Reason string // for people, without the path
	Err    error  // the cause, without the machine's path; may be nil
}

func (e *Error) Error() string { return fmt.Sprintf("%s %q: %s", e.Op, e.Path, e.Reason) }

func (e *Error) Unwrap() error { return e.Err }

// CodeOf is the code of an error of this package, CodeInternal for any other.
func CodeOf(err error) string {
	var e *Error
	var a *AddressError
	switch {
	case errors.As(err, &e):
		return e.Code
	case errors.As(err, &a):
		return CodeInvalidURI
	}
	return CodeInternal
}

func deny(op, code, path, reason string) *Error {
	return &Error{Op: op, Code: code, Path: path, Reason: reason}
}

// failed translates what the operating system or os.Root answered. The cause keeps only the
// innermost error: the outer ones name paths of the machine.
func failed(op, path string, err error) error {
	var own *Error
	if errors.As(err, &own) {
		return err
	}
	e := &Error{Op: op, Path: path, Err: innermost(err)}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.Code, e.Reason = CodeNotFound, "no such file or directory"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		e.Code, e.Reason = CodeDenied, "the system refuses access"
	case errors.Is(err, fs.ErrExist), errors.Is(err, syscall.ENOTEMPTY):
		e.Code, e.Reason = CodeExists, "something is already there"
	case errors.Is(err, fs.ErrClosed):
		e.Code, e.Reason = CodeUnavailable, "the workspace is closed"
	case e.Err.Error() == escapes:
		e.Code, e.Reason = CodeInvalidPath, "the path leads out of the workspace"
	case errors.Is(err, syscall.ENOTDIR):
		e.Code, e.Reason = CodeInvalidPath, "a part of it is not a directory"
	case errors.Is(err, syscall.EISDIR):
		e.Code, e.Reason = CodeInvalidPath, "it is a directory"
	case errors.Is(err, syscall.ELOOP):
		e.Code, e.Reason = CodeInvalidPath, "its links lead in a circle"
	case errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.EINVAL):
		e.Code, e.Reason = CodeInvalidPath, "the system refuses the name"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		e.Code, e.Reason = CodeInternal, "no space left on the disk"
	default:
		e.Code, e.Reason = CodeInternal, e.Err.Error()
	}
	return e
}

// escapes is os.Root's word, which it does not export, for a name that leads out. The walk refuses
// such names itself: this is heard only when a name changes in between.
const escapes = "path escapes from parent"

func innermost(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}
