//go:build !windows && (!unix || aix || solaris)

package main

import (
	"errors"
	"os"
)

// lockFile locks nothing here.
func lockFile(*os.File) (bool, error) { return true, nil }

// lockShared locks nothing here.
func lockShared(*os.File) (bool, error) { return true, nil }

// askToEnd cannot ask here.
func askToEnd(*os.Process) error { return errors.ErrUnsupported }
