//go:build linux && !amd64 && !arm64

package sandbox

import "errors"

const hasFilter = false

func filter(bool, bool) error { return errors.ErrUnsupported }
