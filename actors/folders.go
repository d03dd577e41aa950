package actors

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

// Folders is the table of open workspace handles of this process. The Workspace actor of an
// address is the only one that adds and closes its entry; executors look handles up. It
// guards handles, never the workspace's state: that is the lease's business (row 64).
type Folders struct {
	mu      sync.Mutex
	open    map[string]*folder
	effects map[string]map[uint64][]string // address -> lease token -> exec ids of what runs under it
	jobs    map[string]*leftRunning        // what calls left running
	whys    map[string]string              // address -> why its folder is not there, until that is known
	swept   map[string]bool                // addresses that were cleared of what a crash left
}

type folder struct {
	path, kind string
	mu         sync.Mutex // guards what follows: the handle alone
	why        string     // it is not there; "": nobody has said
	discard    string     // folder that goes when nothing runs in it any more
	ws         *workspace.Workspace
	info       fs.FileInfo // of the folder that ws was opened on
	closed     bool
}

// open gives the handle of the folder, as it is there now: one that was removed is not available, also when something else stands
// in its place, and one that was made anew is opened anew. The root itself follows no link.
func (e *folder) open() (*workspace.Workspace, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, errors.New("it is closed")
	}
	var info fs.FileInfo
	if e.kind != string(workspace.KindServer) { // which is made at first use
		var err error
		if info, err = os.Lstat(e.path); err != nil || !info.IsDir() {
			if e.why != "" {
				return nil, errors.New(e.why)
			}
			return nil, errors.New("its folder is not there")
		}
	}
	if e.ws != nil && (info == nil || os.SameFile(info, e.info)) {
		return e.ws, nil
	}
	e.drop()
	ws, err := workspace.Open(workspace.Options{Dir: e.path, Create: e.kind == string(workspace.KindServer)})
	if err != nil {
		return nil, err
	}
	e.ws, e.info = ws, info
	return ws, nil
}

func (e *folder) drop() {
	if e.ws != nil {
		_ = e.ws.Close() // a root that was only read from: nothing can be lost
	}
	e.ws = nil
}

// close gives the folder that is to be removed now; "": it stays.
func (e *folder) close() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.drop()
	e.closed = true
	return e.discard
}

// explain says why a folder is not there, if it is not; also of one whose Workspace is still to make it known.
func (f *Folders) explain(uri, why string) {
	f.mu.Lock()
	if f.open[uri] == nil {
		f.whys[uri] = why
	}
	f.mu.Unlock()
	f.with(uri, func(e *folder) { e.why = why })
}

// discard has the folder of a copy removed when its workspace closes.
func (f *Folders) discard(uri, dir string) {
	f.with(uri, func(e *folder) { e.discard = dir })
}

func (f *Folders) with(uri string, do func(*folder)) {
	f.mu.Lock()
	e := f.open[uri]
	f.mu.Unlock()
	if e != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		do(e)
	}
}

func newFolders() *Folders {
	return &Folders{open: make(map[string]*folder), effects: make(map[string]map[uint64][]string), swept: make(map[string]bool), whys: make(map[string]string), jobs: make(map[string]*leftRunning)}
}

// admit makes an address known; nothing is opened yet.
func (f *Folders) admit(g *messages.WorkspaceGrant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open[g.GetUri()] == nil {
		f.open[g.GetUri()] = &folder{path: g.GetPath(), kind: g.GetKind(), why: f.whys[g.GetUri()]}
		delete(f.whys, g.GetUri())
	}
}

// lacks says that a workspace on this machine certainly has no such file. It follows no link and reads nothing: it
// spares those who mostly look for what is not there the way through the confinement.
func (f *Folders) lacks(g *messages.WorkspaceGrant, name string) bool {
	f.mu.Lock()
	e := f.open[g.GetUri()]
	f.mu.Unlock()
	if e == nil || e.path == "" {
		return false
	}
	_, err := os.Lstat(filepath.Join(e.path, filepath.FromSlash(name)))
	return errors.Is(err, fs.ErrNotExist)
}

// errElsewhere is of a workspace that nobody here has opened: it belongs to another machine, or its actor has not started yet.
var errElsewhere = errors.New("is not on this machine")

// handle returns the workspace behind a grant, at the trust of the grant. It opens the
// folder at first use; a server workspace is created by the first effect in it.
func (f *Folders) handle(g *messages.WorkspaceGrant) (*workspace.Workspace, error) {
	f.mu.Lock()
	e := f.open[g.GetUri()]
	f.mu.Unlock()
	if e == nil || e.path == "" {
		return nil, fmt.Errorf("workspace %s %w", g.GetUri(), errElsewhere)
	}
	ws, err := e.open()
	if err != nil {
		return nil, fmt.Errorf("workspace %s: %w", g.GetUri(), err)
	}
	return ws.Under(g.GetTrust()), nil
}

// sweeps says, once for each address, that it is to be cleared of what a crash left.
func (f *Folders) sweeps(uri string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := !f.swept[uri]
	f.swept[uri] = true
	return first
}

// close ends a handle; calls that still hold it get errors. It gives the folder that is to be removed; "": none.
func (f *Folders) close(uri string) string {
	f.mu.Lock()
	e := f.open[uri]
	delete(f.open, uri)
	f.mu.Unlock()
	if e == nil {
		return ""
	}
	return e.close()
}

// began notes that an effect runs, or is about to, under a lease. The Workspace counts effects by itself; this is what its
// successor learns of them when it dies (I6).
func (f *Folders) began(l *messages.LeaseToken, exec string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	by := f.effects[l.GetWorkspace()]
	if by == nil {
		by = make(map[uint64][]string)
		f.effects[l.GetWorkspace()] = by
	}
	by[l.GetToken()] = append(by[l.GetToken()], exec)
}

// ended takes back what began noted. The Workspace is told after it.
func (f *Folders) ended(l *messages.LeaseToken, exec string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	by := f.effects[l.GetWorkspace()]
	if i := slices.Index(by[l.GetToken()], exec); i >= 0 {
		by[l.GetToken()] = slices.Delete(by[l.GetToken()], i, i+1)
	}
	if len(by[l.GetToken()]) == 0 {
		delete(by, l.GetToken())
	}
	if len(by) == 0 {
		delete(f.effects, l.GetWorkspace())
	}
}

// leftRunning is a job, and how it is asked to end.
type leftRunning struct {
	worker, session, workspace string
	command                    string // its beginning, for people
	since                      time.Time
	end                        func(why string)
	gone                       chan struct{} // closed when nothing of it is left
}

// keep notes a job; nil: it has ended.
func (f *Folders) keep(job string, left *leftRunning) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if old := f.jobs[job]; old != nil {
		close(old.gone)
	}
	if left == nil {
		delete(f.jobs, job)
		return
	}
	left.gone = make(chan struct{})
	f.jobs[job] = left
}

// endOf asks for the end of all jobs that some workers have running, and returns what is closed when each is gone.
func (f *Folders) endOf(workers []string, why string) (gone []<-chan struct{}) {
	f.mu.Lock()
	var ends []func(string)
	for _, left := range f.jobs {
		if slices.Contains(workers, left.worker) {
			ends, gone = append(ends, left.end), append(gone, left.gone)
		}
	}
	f.mu.Unlock()
	for _, end := range ends {
		end(why)
	}
	return gone
}

// endIn asks for the end of the jobs that a worker has in a workspace.
func (f *Folders) endIn(worker, uri, why string) {
	f.mu.Lock()
	var ends []func(string)
	for _, left := range f.jobs {
		if left.worker == worker && left.workspace == uri {
			ends = append(ends, left.end)
		}
	}
	f.mu.Unlock()
	for _, end := range ends {
		end(why)
	}
}

// jobsOf counts the jobs that a worker has running.
func (f *Folders) jobsOf(worker string) (n int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, left := range f.jobs {
		if left.worker == worker {
			n++
		}
	}
	return n
}

// end asks for the end of a job.
func (f *Folders) end(job, why string) {
	f.mu.Lock()
	left := f.jobs[job]
	f.mu.Unlock()
	if left != nil {
		left.end(why)
	}
}

// whose says whose a job is; "" when nobody knows.
func (f *Folders) whose(job string) (worker, session string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if left := f.jobs[job]; left != nil {
		return left.worker, left.session
	}
	return "", ""
}

// running is what still runs in a workspace, by lease token.
func (f *Folders) running(uri string) map[uint64][]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make(map[uint64][]string)
	for token, execs := range f.effects[uri] {
		out[token] = slices.Clone(execs)
	}
	return out
}
