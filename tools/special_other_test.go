//go:build !linux

package tools

import "errors"

func makeDevice(string) error { return errors.ErrUnsupported }
