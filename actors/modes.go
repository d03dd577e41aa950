package actors

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// Commands of a workspace run where its mode says: in the sandbox of this runtime (local), or each in a container. Where that sandbox is one of
// containers, all of them run in those.

// sandboxFor is what runs the commands of a mode. Not for a mailbox: containers are proven at first use.
func (s *Services) sandboxFor(ctx context.Context, mode string) (tools.Sandbox, error) {
	switch {
	case mode != tools.ModeContainer || tools.PathsOf(s.Sandbox) != nil:
		return s.Sandbox, nil
	case s.Containers == nil:
		return nil, errors.New("this runtime has no containers")
	}
	box, err := s.Containers(ctx)
	if err == nil && tools.PathsOf(box) == nil {
		err = fmt.Errorf("the sandbox %s is none of containers", box.Name())
	}
	return box, err
}

// settleMode says where the commands of a new workspace run: as it is asked for, else as configured. What is not there now is refused.
func (s *Services) settleMode(a *messages.WorkspaceAttached, wanted string) *messages.Failure {
	a.Mode = cmp.Or(wanted, s.Modes[cmp.Or(a.GetSource(), a.GetUri())], tools.ModeLocal)
	switch {
	case a.GetMode() == tools.ModeLocal:
		return nil
	case a.GetMode() != tools.ModeContainer:
		return messages.Fail(messages.CodeBadRequest, fmt.Sprintf("workspace %s: there is no mode %q", known(&messages.WorkspaceGrant{Uri: a.GetUri(), Source: a.GetSource()}), a.GetMode()), "one of local, container")
	case elsewhere(a) != "":
		return messages.Fail(messages.CodeBadRequest, fmt.Sprintf("the commands of %s run where its owner says", a.GetUri()), "leave the mode out")
	}
	ctx, cancel := s.whileRunning(context.Background())
	defer cancel()
	if _, err := s.sandboxFor(ctx, a.GetMode()); err != nil {
		return messages.Fail(messages.CodeSandbox, "no container can be made: "+err.Error(), "leave the mode out to work in the sandbox of this machine")
	}
	return nil
}
