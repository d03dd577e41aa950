//go:build !linux && !darwin

package main

import "errors"

// freeSpace is known on Linux and macOS only.
func freeSpace(string) (int64, error) { return 0, errors.ErrUnsupported }
