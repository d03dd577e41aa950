package actors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// Commands of a workspace run where its mode says: in the sandbox of this runtime (local), or each in a container. Where that sandbox is one of
// containers, all of them run in those.

// applyMode is the fold of a change of mode.
func (f *sessionFacts) applyMode(x *messages.ModeChanged) {
	f.changed = f.seq
	f.attached = slices.Clone(f.attached)
	for i, a := range f.attached {
		if a.GetUri() == x.GetUri() {
			f.attached[i] = proto.CloneOf(a)
			f.attached[i].Mode = x.GetMode()
		}
	}
}

// modeOf is where the commands of a workspace run, of a session whose primary workspace is first: commands leave no container by running in
// the session's own workspace.
func modeOf(a, first *messages.WorkspaceAttached) string {
	if IsHome(a) && first.GetMode() == tools.ModeContainer {
		return tools.ModeContainer
	}
	return a.GetMode()
}

// settleModes lets the commands of what a file brings along run where they would here, or where the file says if that is a container:
// whoever wrote it has no say in what confines less than this configuration. What is kept as the file says, is told.
func (p *Copying) settleModes(ctx context.Context) error {
	if p.Fork {
		return nil
	}
	for _, a := range p.facts.attached {
		named := known(&messages.WorkspaceGrant{Uri: a.GetUri(), Source: a.GetSource()})
		configured := ConfiguredMode(p.svc.Modes, named)
		said := a.GetMode()
		mode := cmp.Or(said, tools.ModeLocal)
		switch {
		case mode != tools.ModeLocal && mode != tools.ModeContainer:
			mode = configured
		case !p.KeepModes && configured == tools.ModeContainer:
			mode = configured
		}
		switch {
		case mode != cmp.Or(said, tools.ModeLocal):
			p.Modes = append(p.Modes, &messages.ModeSettled{Workspace: named, Mode: mode, InsteadOf: said})
			if err := p.sessionFact(ctx, &messages.ModeChanged{Uri: a.GetUri(), Mode: mode, By: p.by()}); err != nil {
				return err
			}
		case mode != configured:
			p.Modes = append(p.Modes, &messages.ModeSettled{Workspace: named, Mode: mode, InsteadOf: configured})
		}
	}
	return nil
}

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

// settleMode says where the commands of a new workspace run: as it is asked for, else as configured. What is not there now is refused, and so is, to
// who is bounded, what confines less than the configuration says.
func (s *Services) settleMode(a *messages.WorkspaceAttached, wanted string, bounds *messages.PathBounds) *messages.Failure {
	called := known(&messages.WorkspaceGrant{Uri: a.GetUri(), Source: a.GetSource()})
	configured := ConfiguredMode(s.Modes, called)
	switch a.Mode = cmp.Or(wanted, configured); {
	case a.GetMode() == tools.ModeLocal && configured != tools.ModeLocal && bounds != nil && !bounds.GetAnyMode():
		return messages.Fail(messages.CodeForbidden, fmt.Sprintf("the commands of %s run in a container, as the configuration says: mode local needs scope admin", called), "leave the mode out, or use a token that may")
	case a.GetMode() == tools.ModeLocal:
		return nil
	case a.GetMode() != tools.ModeContainer:
		return messages.Fail(messages.CodeBadRequest, fmt.Sprintf("workspace %s: there is no mode %q", called, a.GetMode()), "one of local, container")
	case elsewhere(a) != "":
		return messages.Fail(messages.CodeBadRequest, fmt.Sprintf("the commands of %s run where its owner says", a.GetUri()), "leave the mode out")
	}
	return s.contained()
}

// contained refuses when no container can be made.
func (s *Services) contained() *messages.Failure {
	ctx, cancel := s.whileRunning(context.Background())
	defer cancel()
	if _, err := s.sandboxFor(ctx, tools.ModeContainer); err != nil {
		return messages.Fail(messages.CodeSandbox, "no container can be made: "+err.Error(), "leave the mode out to work in the sandbox of this machine")
	}
	return nil
}

// ConfiguredMode is the mode of an address that nobody says otherwise of: its own; else container, when a folder above it or one in it is
// configured so, as a command there reaches the files of that; of a repository any ref and folder is the same, as a clone has all of it.
func ConfiguredMode(all map[string]string, uri string) string {
	if mode := all[uri]; mode != "" {
		return mode
	}
	host, path, _ := strings.Cut(uri, ":")
	for other, mode := range all {
		h, p, _ := strings.Cut(other, ":")
		same := within(path, p) || within(p, path)
		if h == "git" {
			same = strings.EqualFold(repository(path), repository(p))
		}
		if h == host && same && mode == tools.ModeContainer {
			return mode
		}
	}
	return tools.ModeLocal
}

// repository is what is cloned, of the path of a git address: without ref and folder, and without what names the same once more.
func repository(path string) string {
	path, _, _ = strings.Cut(path, "//")
	path, _, _ = strings.Cut(path, "@")
	for strings.HasSuffix(path, ".git") {
		path = strings.TrimSuffix(path, ".git")
	}
	host, rest, _ := strings.Cut(path, "/")
	return strings.TrimSuffix(host, ":443") + "/" + rest
}

// homeMode is the mode of a session's own workspace: as configured, and a container's for as long as the primary workspace has that (modeOf).
func (s *Services) homeMode(home *messages.WorkspaceAttached) *messages.Failure {
	home.Mode = ConfiguredMode(s.Modes, home.GetUri())
	if home.GetMode() == tools.ModeContainer {
		return s.contained()
	}
	return nil
}
