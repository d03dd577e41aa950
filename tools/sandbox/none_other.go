//go:build unix && !linux

package sandbox

import (
	"context"
	"errors"
	"syscall"

	"github.com/troupe-dev/troupe/tools"
)

const hasHelper = false

func hide(Options) {}

func ownHandles() {}

// dyingWithUs changes nothing: this system ends no process with its parent.
func dyingWithUs(a *syscall.SysProcAttr) *syscall.SysProcAttr { return a }

func signalName(s syscall.Signal) string { return s.String() }

func (n *none) runBelowHelper(context.Context, tools.Command, []string, string, []string, *group) (tools.Exit, error) {
	return tools.Exit{}, errors.ErrUnsupported
}
