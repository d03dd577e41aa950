// Package gitclone makes transient clones of repositories of other people, by their addresses alone
// (`git:host/owner/repo[@ref][//subdir]`), over https and nothing else.
//
// A repository is hostile: nothing in it is run. It is looked up and fetched with settings of ours over an
// environment of ours, without templates, hooks, submodules, links, credentials or questions. The host is
// looked up once, held against the addresses that may be reached, and git is given what was found. The
// size is watched while it grows. What git must parse, it parses in the sandbox, when there is one.
package gitclone

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/workspace"
)

// Defaults of Options.
const (
	DefaultMaxBytes = 2 << 30
	DefaultTimeout  = 10 * time.Minute
)

// TreeName is the folder of a clone's files in the folder that was made for it.
const TreeName = "tree"

// Options say what a clone may cost and reach. The zero value works.
type Options struct {
	MaxBytes int64          // on disk, while it is made and afterwards; 0: DefaultMaxBytes
	Timeout  time.Duration  // for all of it; 0: DefaultTimeout
	Reach    []netip.Prefix // addresses that may be reached though they are not public
	Sandbox  tools.Sandbox  // git runs in it when it confines; may be nil

	// RootCAs is a file of certificates (PEM) that are believed instead of the system's.
	RootCAs string
	// Lookup finds the addresses of a host; nil: the system does.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
}

// Cloner makes clones. It is safe for concurrent use.
type Cloner struct{ o Options }

// New makes a Cloner.
func New(o Options) *Cloner {
	if o.MaxBytes <= 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Lookup == nil {
		o.Lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	return &Cloner{o}
}

// errTime and errSize say why a clone was ended.
var (
	errTime = errors.New("the clone takes too long")
	errSize = errors.New("the clone is too large")
)

// Clone makes the clone of an address in dir, which does not exist yet: it is there when it is whole. The files are in its
// folder TreeName. With a commit the clone is of that, whatever the address means by now. It returns the commit. grown, which may be nil,
// is told how many bytes there are, a few times a second. Errors are *messages.Failure.
func (c *Cloner) Clone(ctx context.Context, address, commit, dir string, grown func(bytes int64)) (string, error) {
	addr, err := workspace.Parse(address, "")
	if err != nil {
		return "", messages.Fail(messages.CodeInvalidURI, err.Error(), "")
	}
	if addr.Kind != workspace.KindGit {
		return "", messages.Fail(messages.CodeInvalidURI, addr.Canonical+" is no git address", "git:HOST/OWNER/REPOSITORY")
	}
	if !filepath.IsAbs(dir) { // nothing that is given to git begins with a dash, and nothing is made where this process happens to be
		return "", messages.Fail(tools.CodeInvalidArguments, fmt.Sprintf("a clone is made in an absolute folder, and %q is none", dir), "")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.o.Timeout, errTime)
	defer cancel()
	part := dir + ".part"
	if err := errors.Join(os.RemoveAll(part), os.MkdirAll(part, 0o700)); err != nil {
		return "", messages.Fail(messages.CodeUnavailable, fmt.Sprintf("make the folder of a clone: %v", err), "")
	}
	w := &cloning{o: &c.o, addr: addr, part: part, grown: grown}
	commit, err = w.clone(ctx, commit)
	if err == nil {
		err = w.place(dir)
	}
	if err != nil {
		_ = os.RemoveAll(part) // else the next start removes it
		return "", w.failure(ctx, err)
	}
	return commit, nil
}

// cloning is one clone under way.
type cloning struct {
	o     *Options
	addr  *workspace.Address
	part  string // folder that becomes the clone's
	url   string
	pins  []string // host:port:address, as git takes them
	grown func(int64)
}

func (w *cloning) clone(ctx context.Context, commit string) (string, error) {
	if err := w.find(ctx); err != nil {
		return "", err
	}
	ctx, stop := w.watch(ctx)
	defer stop()
	branch := ""
	var err error
	if commit == "" {
		if commit, branch, err = w.resolve(ctx); err != nil {
			return "", err
		}
	}
	if err := w.fetch(ctx, commit); err != nil {
		return "", err
	}
	args := []string{"checkout", "-q", "--detach", commit, "--"}
	if branch != "" {
		args = []string{"checkout", "-q", "-B", branch, commit, "--"}
	}
	if _, err := w.inTree(ctx, args...); err != nil {
		return "", err
	}
	if size(w.part) > w.o.MaxBytes { // of what came since the watcher looked last
		return "", errSize
	}
	return commit, nil
}

// resolve finds out which commit the address means now, and on which branch.
func (w *cloning) resolve(ctx context.Context) (commit, branch string, err error) {
	ref := w.addr.Ref
	if isCommit(ref) {
		return ref, "", nil
	}
	wanted := []string{"HEAD"}
	if ref != "" {
		wanted = []string{"refs/heads/" + ref, "refs/tags/" + ref, "refs/tags/" + ref + "^{}"}
	}
	out, err := w.git(ctx, w.part, append([]string{"ls-remote", "--symref", "--", w.url}, wanted...)...)
	if err != nil {
		return "", "", err
	}
	found := map[string]string{}
	for line := range strings.Lines(out) {
		id, name, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if head, ok := strings.CutPrefix(id, "ref: refs/heads/"); ok && name == "HEAD" && workspace.RefName(head) {
			branch = head
		}
		if isCommit(id) {
			found[name] = id
		}
	}
	if ref == "" {
		if found["HEAD"] == "" {
			return "", "", messages.Fail(messages.CodeNotFound, fmt.Sprintf("the repository %s is empty", w.addr.Canonical), "")
		}
		return found["HEAD"], branch, nil
	}
	for i, name := range []string{wanted[0], wanted[2], wanted[1]} { // a tag that is an object of its own names the commit behind it
		if found[name] != "" {
			if i == 0 {
				branch = ref
			}
			return found[name], branch, nil
		}
	}
	return "", "", messages.Fail(messages.CodeNotFound, fmt.Sprintf("the repository git:%s/%s has no branch or tag %q", w.addr.Host, w.addr.Path, ref),
		"name a branch, a tag, or a commit by its whole id")
}

// isCommit says whether a text is a whole object id.
func isCommit(id string) bool {
	return (len(id) == 40 || len(id) == 64) && strings.Trim(id, "0123456789abcdef") == ""
}

func (w *cloning) fetch(ctx context.Context, commit string) error {
	format := "sha1"
	if len(commit) == 64 {
		format = "sha256"
	}
	if _, err := w.git(ctx, w.part, "init", "-q", "--template=", "--object-format="+format, "--initial-branch=none", "--", TreeName); err != nil {
		return err
	}
	if _, err := w.inTree(ctx, "config", "core.symlinks", "false"); err != nil { // else links would count as changed from now on
		return err
	}
	_, err := w.inTree(ctx, "fetch", "-q", "--depth=1", "--no-tags", "--no-recurse-submodules", "--no-auto-maintenance", "--", w.url, commit)
	return err
}

// place makes the finished clone appear.
func (w *cloning) place(dir string) error {
	if w.addr.Subdir != "" {
		root, err := os.OpenRoot(filepath.Join(w.part, TreeName))
		if err != nil {
			return fmt.Errorf("look at the clone: %w", err)
		}
		info, err := root.Lstat(filepath.FromSlash(w.addr.Subdir))
		_ = root.Close()
		if err != nil || !info.IsDir() || protected(w.addr.Subdir) {
			return messages.Fail(messages.CodeNotFound, fmt.Sprintf("the repository git:%s/%s has no folder %q", w.addr.Host, w.addr.Path, w.addr.Subdir), "")
		}
	}
	_ = os.Remove(filepath.Join(w.part, caFile))
	if err := os.Rename(w.part, dir); err != nil {
		return fmt.Errorf("put the clone in its place: %w", err)
	}
	return nil
}

// protected says whether a folder of a repository is git's own, or ours.
func protected(subdir string) bool {
	first, _, _ := strings.Cut(subdir, "/")
	return strings.EqualFold(first, ".git") || strings.EqualFold(first, ".troupe")
}

// watch ends a clone that grows too large, and tells how it grows.
func (w *cloning) watch(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for wait := pollEach; ; {
			t := time.NewTimer(wait)
			select {
			case <-ctx.Done():
				t.Stop()
				return
			case <-t.C:
			}
			start := time.Now()
			n := size(w.part)
			wait = max(pollEach, 4*time.Since(start))
			if w.grown != nil {
				w.grown(n)
			}
			if n > w.o.MaxBytes {
				cancel(errSize)
			}
		}
	}()
	return ctx, func() { cancel(nil); <-done }
}

const pollEach = 100 * time.Millisecond

// size counts the bytes of a folder, each file as at least a block, as far as they can be seen: files come and go meanwhile.
func size(dir string) int64 {
	var n int64
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it is gone again
		}
		n += 512
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return nil
	})
	return n
}

// failure words what went wrong.
func (w *cloning) failure(ctx context.Context, err error) error {
	var own *messages.Failure
	switch {
	case errors.Is(context.Cause(ctx), errTime):
		return messages.Fail(messages.CodeTimeout, fmt.Sprintf("cloning %s took longer than %v", w.addr.Canonical, w.o.Timeout), "")
	case ctx.Err() != nil:
		return messages.Fail(messages.CodeUnavailable, "cloning "+w.addr.Canonical+" was ended before it was through", "try again")
	case errors.Is(err, errSize):
		return messages.Fail(messages.CodeTooLarge, fmt.Sprintf("the clone of %s is larger than %d MiB", w.addr.Canonical, w.o.MaxBytes>>20), "clone it yourself, and attach the folder")
	case errors.As(err, &own):
		return own
	}
	return messages.Fail(messages.CodeNetwork, fmt.Sprintf("cannot clone %s: %v", w.addr.Canonical, err), "")
}
