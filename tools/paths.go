package tools

import (
	"path/filepath"
	"strings"

	"github.com/troupe-dev/troupe/messages"
)

// Paths is what a Sandbox has besides when its commands see the workspace under another name than
// the machine does (mode container). A path that is not there has no translation: false.
type Paths interface {
	// Inside is where a command finds a path of the machine.
	Inside(workspace, path string) (string, bool)
	// Outside is the machine's path for one that a command knows.
	Outside(workspace, path string) (string, bool)
	// ContainerID names the container that a call's command runs in.
	ContainerID(exec string) string
}

// The modes of a workspace.
const (
	ModeLocal     = "local"
	ModeContainer = "container"
)

// PathsOf is a sandbox's translator; nil: commands see the machine's own paths.
func PathsOf(s Sandbox) Paths {
	for s != nil {
		if p, ok := s.(Paths); ok {
			return p
		}
		w, ok := s.(interface{ Unwrap() Sandbox })
		if !ok {
			return nil
		}
		s = w.Unwrap()
	}
	return nil
}

// Enter makes a call's context one of mode container, where its sandbox is one of containers.
func (c *Context) Enter() {
	p := PathsOf(c.Sandbox)
	if p == nil || c.Workspace == nil {
		return
	}
	info := c.WorkspaceInfo
	if info == nil {
		info = &messages.WorkspaceInfo{}
	}
	root := c.Workspace.HostDir()
	inside := func(path string) string {
		if in, ok := p.Inside(root, path); ok {
			return in
		}
		in, _ := p.Inside(root, root) // what is not in the container is not named
		return in
	}
	c.WorkspaceInfo = &messages.WorkspaceInfo{
		Mode: ModeContainer, WorkingDirectory: inside(info.GetWorkingDirectory()), ProjectDir: info.GetProjectDir(), ClonePath: info.GetClonePath(),
		ContainerId: p.ContainerID(c.ExecID),
	}
	c.Paths = p
}

func (c *Context) inContainer() bool { return c.WorkspaceInfo.GetMode() == ModeContainer }

// HostPath is the machine's path for one that the caller named (acceptance row 10). Without a
// workspace it is the name itself. In mode container it is translated, and without a translator it
// is an error: a path of the machine is never taken for one of the container. In mode local it is
// below the workspace's root. Names are not followed here: who opens the file does it by the workspace.
func (c *Context) HostPath(name string) (string, error) {
	if c.Workspace == nil {
		return name, nil
	}
	root := c.Workspace.HostDir()
	full := name
	switch {
	case c.inContainer():
		if c.Paths == nil {
			return "", noTranslator()
		}
		if !strings.HasPrefix(name, "/") {
			full = filepath.Join(root, filepath.FromSlash(c.WorkingDirectory), filepath.FromSlash(name))
			break
		}
		var ok bool
		if full, ok = c.Paths.Outside(root, name); !ok {
			return "", outsideRoot(name)
		}
	case !filepath.IsAbs(name):
		full = filepath.Join(root, filepath.FromSlash(c.WorkingDirectory), filepath.FromSlash(name))
	}
	if full = filepath.Clean(full); full != root && !strings.HasPrefix(full, strings.TrimSuffix(root, string(filepath.Separator))+string(filepath.Separator)) {
		return "", outsideRoot(name)
	}
	return full, nil
}

// CommandPath is how a command of the call names a path of the machine: the reverse of HostPath.
func (c *Context) CommandPath(host string) (string, error) {
	switch {
	case c.Workspace == nil || !c.inContainer():
		return host, nil
	case c.Paths == nil:
		return "", noTranslator()
	}
	in, ok := c.Paths.Inside(c.Workspace.HostDir(), host)
	if !ok {
		return "", Errorf(CodeInvalidPath, "Invalid path: it is not in the container")
	}
	return in, nil
}

func noTranslator() error {
	return Errorf(CodeWorkspaceNotAvailable, "the workspace is in a container, and nothing translates its paths")
}

func outsideRoot(name string) error {
	return Errorf(CodeInvalidPath, "Invalid path: %s: it leaves the workspace", cleanText(name)).With("path", cleanText(name))
}
