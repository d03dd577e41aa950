package actors

import (
	"fmt"
	"strconv"
	"sync"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

// Folders is the table of open workspace handles of this process. The Workspace actor of an
// address is the only one that adds and closes its entry; executors look handles up. It
// guards handles, never the workspace's state: that is the lease's business (row 64).
type Folders struct {
	mu   sync.Mutex
	open map[string]*folder
}

type folder struct {
	path, kind string
	once       sync.Once
	ws         *workspace.Workspace
	err        error
}

func newFolders() *Folders { return &Folders{open: make(map[string]*folder)} }

// admit makes an address known; nothing is opened yet.
func (f *Folders) admit(g *messages.WorkspaceGrant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open[g.GetUri()] == nil {
		f.open[g.GetUri()] = &folder{path: g.GetPath(), kind: g.GetKind()}
	}
}

// handle returns the workspace behind a grant, at the trust of the grant. It opens the
// folder at first use; a server workspace is created by the first effect in it.
func (f *Folders) handle(g *messages.WorkspaceGrant) (*workspace.Workspace, error) {
	f.mu.Lock()
	e := f.open[g.GetUri()]
	f.mu.Unlock()
	if e == nil || e.path == "" {
		return nil, fmt.Errorf("workspace %s is not on this machine", g.GetUri())
	}
	e.once.Do(func() {
		e.ws, e.err = workspace.Open(workspace.Options{Dir: e.path, Create: e.kind == "server"})
	})
	if e.err != nil {
		return nil, e.err
	}
	return e.ws.Under(g.GetTrust()), nil
}

// close ends a handle; calls that still hold it get errors.
func (f *Folders) close(uri string) {
	f.mu.Lock()
	e := f.open[uri]
	delete(f.open, uri)
	f.mu.Unlock()
	if e == nil {
		return
	}
	e.once.Do(func() { e.err = fmt.Errorf("workspace %s is closed", uri) })
	if e.ws != nil {
		_ = e.ws.Close() // a root that was only read from: nothing can be lost
	}
}

func itoa(n uint64) string { return strconv.FormatUint(n, 10) }
