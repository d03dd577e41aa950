//go:build !linux

package attacks

import "errors"

func makeDevice(string) error { return errors.ErrUnsupported }
