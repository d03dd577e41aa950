package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/troupe-dev/troupe/messages"
)

// MaxFile is the size limit of a file that is read, in bytes, where a caller gives none.
const MaxFile = 10 << 20

// Options opens a workspace. Dir is required.
type Options struct {
	Dir     string               // folder on this machine, absolute
	Address *Address             // nil: a folder without an address, as in tests of tools
	Trust   messages.Trust_Level // of the workspace; unspecified counts as Restricted
	Create  bool                 // make Dir (mode 0700) with the first effect rather than fail without it
	// InnerDir is the absolute path at which commands see Dir when they run in a container
	// (mode container). Only this path is then understood as an absolute name of the root:
	// never the machine's own.
	InnerDir string
}

// Workspace is a folder to which file access is confined. It is safe for concurrent use.
type Workspace struct {
	*folder
	trust messages.Trust_Level
}

// folder is what all views of one opened workspace share.
type folder struct {
	dir     string
	inner   string
	address *Address
	create  bool
	roots   []string // absolute names of the root that callers may use

	mu     sync.Mutex // guards root and closed: the handle alone, not the workspace's content
	root   *os.Root   // nil until a folder that is made on first use exists
	closed bool
}

// Open opens the folder. It fails when Dir is no directory, or does not exist and Create is not
// set. The caller ends it with Close.
func Open(o Options) (*Workspace, error) {
	if !filepath.IsAbs(o.Dir) {
		return nil, fmt.Errorf("open workspace %q: the folder must be an absolute path", o.Dir)
	}
	if o.InnerDir != "" && !strings.HasPrefix(o.InnerDir, "/") {
		return nil, fmt.Errorf("open workspace %q: the inner folder %q must be an absolute path", o.Dir, o.InnerDir)
	}
	f := &folder{dir: filepath.Clean(o.Dir), inner: o.InnerDir, address: o.Address, create: o.Create}
	w := &Workspace{folder: f, trust: o.Trust}
	f.roots = []string{f.dir}
	if o.InnerDir != "" {
		f.roots = []string{o.InnerDir}
	}
	_, err := f.base(false)
	if err == nil || o.Create && errors.Is(err, fs.ErrNotExist) {
		return w, nil
	}
	return nil, fmt.Errorf("open workspace %q: %w", o.Dir, err)
}

// base is the handle of the root. With making it creates a folder that is made on first use.
func (f *folder) base(making bool) (*os.Root, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, fs.ErrClosed
	}
	if f.root != nil {
		return f.root, nil
	}
	root, err := os.OpenRoot(f.dir)
	if errors.Is(err, fs.ErrNotExist) && f.create && making {
		if err := os.MkdirAll(f.dir, 0o700); err != nil {
			return nil, err
		}
		root, err = os.OpenRoot(f.dir)
	}
	if err != nil {
		return nil, err
	}
	f.root = root
	// Models repeat what `pwd` printed: links in the name of the root are resolved there.
	if real, err := filepath.EvalSymlinks(f.dir); err == nil && f.inner == "" && real != f.dir {
		f.roots = []string{f.dir, real}
	}
	return root, nil
}

// unmade says that nothing was put yet into a folder that is made on first use.
func (f *folder) unmade() bool {
	_, err := f.base(false)
	return f.create && errors.Is(err, fs.ErrNotExist)
}

// Close releases the root for this workspace and all its views. Calls under way finish; later
// ones fail with CodeUnavailable. It may be called more than once.
func (f *folder) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	if f.root == nil {
		return nil
	}
	root := f.root
	f.root = nil
	return root.Close()
}

// Under is a view of the same workspace at another trust level: the one of the call's grant.
// Unspecified leaves it as it is. Views share the root and are not closed one by one.
func (w *Workspace) Under(level messages.Trust_Level) *Workspace {
	if level == messages.Trust_UNSPECIFIED || level == w.trust {
		return w
	}
	return &Workspace{folder: w.folder, trust: level}
}

// Trust is the level under which this view works, RESTRICTED where nobody said anything.
func (w *Workspace) Trust() messages.Trust_Level {
	if w.trust == messages.Trust_FULL {
		return messages.Trust_FULL
	}
	return messages.Trust_RESTRICTED
}

// Address names the workspace; nil for one opened without.
func (f *folder) Address() *Address { return f.address }

// HostDir is the folder on this machine. It is for the sandbox that binds or enters it, never for
// a tool to join paths to: a name checked and then used as text can have changed its meaning. The
// folder need not exist yet; Ensure makes it.
func (f *folder) HostDir() string { return f.dir }

// Ensure makes a folder that is made on first use.
func (f *folder) Ensure() error {
	if _, err := f.base(true); err != nil {
		return failed("open", ".", err)
	}
	return nil
}

// Rel checks a path and makes it relative to the root, with slashes: the text alone, links are
// not followed and nothing need exist. It is not a licence to open the result by name.
func (f *folder) Rel(path string) (string, error) {
	parts, _, err := clean(reading, path, f.names())
	if err != nil {
		return "", err
	}
	return joined(parts), nil
}

// Seen is the absolute path at which commands see a path of the workspace: below InnerDir in a
// container, below the folder itself otherwise.
func (f *folder) Seen(path string) (string, error) {
	rel, err := f.Rel(path)
	if err != nil {
		return "", err
	}
	if f.inner != "" {
		return strings.TrimSuffix(f.inner, "/") + "/" + rel, nil
	}
	return filepath.Join(f.dir, filepath.FromSlash(rel)), nil
}

func (f *folder) names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.roots
}

func mustBeDir(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("look at folder %q: %w", dir, innermost(err))
	}
	if !info.IsDir() {
		return fmt.Errorf("folder %q is not a directory", dir)
	}
	return nil
}

// ended tells of a call that was given up, for loops of unknown length.
func ended(ctx context.Context) error {
	if ctx == nil {
		return nil
	}
	return ctx.Err()
}
