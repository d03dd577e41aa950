package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestEveryAnswerOfTheSystemHasACodeAndHidesThePath(t *testing.T) {
	for cause, code := range map[error]string{
		syscall.ENOENT: CodeNotFound, syscall.EACCES: CodeDenied, syscall.EPERM: CodeDenied, syscall.EROFS: CodeDenied, syscall.EEXIST: CodeExists,
		syscall.ENOTEMPTY: CodeExists, fs.ErrClosed: CodeUnavailable, syscall.ENOTDIR: CodeInvalidPath, syscall.EISDIR: CodeInvalidPath,
		syscall.ELOOP: CodeInvalidPath, syscall.ENAMETOOLONG: CodeInvalidPath, syscall.EINVAL: CodeInvalidPath, syscall.ENOSPC: CodeInternal,
		syscall.EIO: CodeInternal, escape(t): CodeInvalidPath,
	} {
		outer := fmt.Errorf("again: %w", &os.PathError{Op: "openat", Path: "/home/somebody/f", Err: cause})
		err := failed("read", "f", outer)
		if CodeOf(err) != code || strings.Contains(err.Error(), "somebody") || !errors.Is(err, cause) {
			t.Errorf("%v: got %v (code %s), want code %s", cause, err, CodeOf(err), code)
		}
		var e *Error
		if errors.As(err, &e) && strings.Contains(e.Err.Error(), "somebody") {
			t.Errorf("%v: the cause tells the machine's path: %v", cause, e.Err)
		}
		if again := failed("write", "g", err); again != err { //nolint:errorlint // the very same value is wanted
			t.Errorf("an error of this package was wrapped again: %v", again)
		}
	}
}

// escape provokes os.Root's own error, whose text the package must know.
func escape(t *testing.T) error {
	t.Helper()
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	_, err = root.Lstat("../x")
	return innermost(err)
}
