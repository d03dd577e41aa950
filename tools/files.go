package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"path"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

// Limits that the file tools share.
const (
	maxResultBytes = 50 << 10 // of one result's content
	maxLineChars   = 2000     // of one line in a result
	maxWriteBytes  = 5 << 20  // of what write_file takes
)

// workspaceArg is the schema of the argument that every tool takes: calls are routed by it
// before they reach a tool, which ignores it.
const workspaceArg = `"workspace_id":{"type":"string","description":"Id, name or address of the workspace; without it the session's primary one."}`

// fileTool is a tool that works on the files of the call's workspace. A is its decoded arguments.
type fileTool[A any] struct {
	spec *Spec
	run  func(c *fileCall, a A) (*Result, error)
}

// Spec implements Tool.
func (t *fileTool[A]) Spec() *Spec { return t.spec }

// Run implements Tool.
func (t *fileTool[A]) Run(tc *Context, args json.RawMessage) (*Result, error) {
	c, a, err := decodeCall[A](tc, t.spec, args)
	if err != nil {
		return nil, err
	}
	return t.run(c, a)
}

// changeTool is a fileTool whose effect can be recognised afterwards. prepare names the state of
// what the call is about to change, and fails as the call would; settle tells from that state
// and the present one whether the call happened.
type changeTool[A any] struct {
	fileTool[A]
	prepare func(c *fileCall, a A) ([]*messages.FileHash, error)
	settle  func(c *fileCall, a A, pre []*messages.FileHash) (*Result, error)
	diff    func(c *fileCall, a A) (string, error) // what it would change, for people; may be nil
}

// Preview implements Previewer. The files are hashed before and after they are read for the diff, so that what is shown
// is what the hashes say.
func (t *changeTool[A]) Preview(tc *Context, args json.RawMessage) (*Preview, error) {
	c, a, err := decodeCall[A](tc, t.spec, args)
	if err != nil {
		return nil, err
	}
	files, err := t.prepare(c, a)
	if err != nil {
		return nil, err
	}
	p := &Preview{Kind: PreviewArguments, Files: files}
	if t.diff == nil {
		p.Text, err = named(t.spec, args)
		return p, err
	}
	p.Kind = PreviewDiff
	if p.Text, err = t.diff(c, a); err != nil {
		return nil, err
	}
	if p.Text == "" { // it changes nothing
		p.Kind = PreviewArguments
		if p.Text, err = named(t.spec, args); err != nil {
			return nil, err
		}
	}
	again, err := t.prepare(c, a)
	if err != nil {
		return nil, err
	}
	if !SameFiles(files, again, false) {
		return nil, Errorf(CodeConcurrentModification, "%s changed while it was looked at; try again", cleanText(files[0].GetPath()))
	}
	return p, nil
}

// SameFiles tells whether files are as they were. With edited, what the call leaves in them may differ, and so may which ones
// it is about: only those that are in both must be the same.
func SameFiles(was, now []*messages.FileHash, edited bool) bool {
	then := make(map[string]*messages.FileHash, len(was))
	for _, f := range was {
		then[f.GetPath()] = f
	}
	for _, f := range now {
		t := then[f.GetPath()]
		switch {
		case t == nil && !edited:
			return false
		case t == nil:
		case t.GetSha256() != f.GetSha256(), !edited && t.GetPlannedSha256() != f.GetPlannedSha256():
			return false
		}
	}
	return edited || len(was) == len(now)
}

// named is the preview of a call whose effect cannot be drawn: its name and its arguments.
func named(spec *Spec, args json.RawMessage) (string, error) {
	text, _, err := Canonical(args)
	if err != nil {
		return "", err
	}
	return spec.Name + " " + string(text), nil
}

// PreviewOf shows a person what a call would do, whatever the tool.
func PreviewOf(t Tool, tc *Context, args json.RawMessage) (*Preview, error) {
	if p, ok := t.(Previewer); ok {
		return p.Preview(tc, args)
	}
	if _, ok := t.(*fileTool[execArgs]); ok {
		return previewExec(t.Spec(), args)
	}
	text, err := named(t.Spec(), args)
	return &Preview{Kind: PreviewArguments, Text: text}, err
}

// Prepare implements Preparer.
func (t *changeTool[A]) Prepare(tc *Context, args json.RawMessage) ([]*messages.FileHash, error) {
	c, a, err := decodeCall[A](tc, t.spec, args)
	if err != nil {
		return nil, err
	}
	return t.prepare(c, a)
}

// Reconcile implements Reconciler.
func (t *changeTool[A]) Reconcile(tc *Context, args json.RawMessage, pre []*messages.FileHash) (*Result, error) {
	c, a, err := decodeCall[A](tc, t.spec, args)
	if err != nil {
		return nil, err
	}
	if len(pre) == 0 {
		return nil, Errorf(CodeInterrupted, "cannot tell whether %s happened: the state before it is not known", t.spec.Name)
	}
	res, err := t.settle(c, a, pre)
	for _, f := range pre {
		// Whatever the answer is, half of a file is of no use. One that stays is swept by RemoveStale.
		_ = c.ws.RemoveLeft(f.GetPath(), c.ExecID)
	}
	return res, err
}

// undecided is settle's answer when the files are neither as before nor as the call leaves them.
func undecided(c *fileCall, name string) error {
	return Errorf(CodeInterrupted, "cannot tell whether the call happened: %s is neither as it was before nor as the call leaves it", c.show(name))
}

// fileCall is one call on the files of a workspace.
type fileCall struct {
	*Context
	ws  *workspace.Workspace // under the call's trust
	ctx context.Context      //nolint:containedctx // the call's own, for its duration
}

func decodeCall[A any](tc *Context, spec *Spec, args json.RawMessage) (*fileCall, A, error) {
	var a A
	if err := Decode(spec, args, &a); err != nil {
		return nil, a, err
	}
	if tc == nil || tc.Workspace == nil {
		return nil, a, Errorf(CodeWorkspaceNotAvailable, "No active project")
	}
	if tc.inContainer() && tc.Paths == nil {
		return nil, a, noTranslator()
	}
	c := &fileCall{Context: tc, ws: tc.Workspace.Under(tc.Trust), ctx: tc.Signal}
	if c.ctx == nil {
		c.ctx = context.Background()
	}
	return c, a, nil
}

// at is the workspace's path for a path of the call, which counts from the working directory.
func (c *fileCall) at(name string) string {
	if c.inContainer() && strings.HasPrefix(name, "/") {
		if host, err := c.HostPath(name); err == nil {
			return host
		}
		return "/.." + name // a path of the machine means nothing there, and leads nowhere
	}
	wd := c.WorkingDirectory
	if wd == "" || wd == "." || name == "" || strings.HasPrefix(name, "/") || filepath.IsAbs(name) {
		return name
	}
	return strings.TrimSuffix(wd, "/") + "/" + name
}

// show is the inverse of at: how a path of the workspace is written for this call.
func (c *fileCall) show(real string) string {
	wd := path.Clean(strings.TrimSuffix(c.WorkingDirectory, "/"))
	if wd == "." || wd == "" || strings.HasPrefix(wd, "/") {
		return cleanName(real)
	}
	if rest, ok := strings.CutPrefix(real, wd+"/"); ok {
		return cleanName(rest)
	}
	if real == wd {
		return "."
	}
	return cleanName(strings.Repeat("../", strings.Count(wd, "/")+1) + real)
}

// known is the hash that this conversation last saw of a file, empty when it never read it.
func (c *fileCall) known(real string) string { return c.Known[real] }

// mayChange holds the rule that a file is read before it is changed, and not changed by others
// since. now is the file's hash at this moment.
func (c *fileCall) mayChange(name, real, now, expected string) error {
	switch known := c.known(real); {
	case expected != "" && expected != now, expected == "" && known != "" && known != now && !c.Fresh:
		return Errorf(CodeConcurrentModification, "File %s has been modified since it was last read; read it again", name).
			With("path", real)
	case expected == "" && known == "" && !c.Fresh:
		return Errorf(CodeNotRead, "you must read the file before editing it: %s", name).With("path", real)
	}
	return nil
}

// fail translates an error of the workspace into what the model reads.
func (c *fileCall) fail(name string, err error) error {
	name = cleanName(name)
	if c.ctx.Err() != nil && errors.Is(err, c.ctx.Err()) {
		return stopped(err)
	}
	var w *workspace.Error
	if !errors.As(err, &w) {
		return err
	}
	switch w.Code {
	case workspace.CodeNotFound:
		return Errorf(w.Code, "File not found: %s%s", name, c.nearNames(name)).With("path", name)
	case workspace.CodeInvalidPath:
		return Errorf(w.Code, "Invalid path: %s: %s", name, w.Reason).With("path", name)
	case workspace.CodeDenied:
		return Errorf(w.Code, "Access denied: %s: %s", name, w.Reason).With("path", name)
	case workspace.CodeTooLarge:
		return Errorf(w.Code, "File too large: %s: %s", name, w.Reason).With("path", name)
	case workspace.CodeChanged:
		return Errorf(w.Code, "File %s has been modified since it was last read: %s", name, w.Reason).With("path", name)
	}
	return Errorf(w.Code, "%s: %s", name, w.Reason).With("path", name)
}

func stopped(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return Errorf(CodeTimeout, "the call took too long and was stopped")
	}
	return Errorf(CodeCancelled, "the call was cancelled")
}

// nearNames proposes what may have been meant by the name of a missing file.
func (c *fileCall) nearNames(name string) string {
	dir, base := path.Split(strings.TrimSuffix(name, "/"))
	if base == "" {
		return ""
	}
	if dir == "" {
		dir = "."
	}
	var near []string
	_, err := c.ws.Walk(c.ctx, c.at(dir), func(e *workspace.Entry) error {
		if len(near) == 3 {
			return workspace.Stop
		}
		if alike(base, e.Name) {
			near = append(near, c.show(e.Path))
		}
		if e.IsDir() {
			return workspace.SkipDir
		}
		return nil
	})
	if err != nil || len(near) == 0 {
		return ""
	}
	return ". Did you mean " + strings.Join(near, ", ") + "?"
}

// alike tells names that differ in case, in their extension or by a typing error or two.
func alike(a, b string) bool {
	a, b = strings.ToLower(a), strings.ToLower(b)
	stem := func(s string) string { return strings.TrimSuffix(s, path.Ext(s)) }
	return a == b || stem(a) != "" && stem(a) == stem(b) || within(a, b, 1+min(len(a), len(b))/6)
}

// within tells whether at most n bytes must be put in, left out or changed to turn a into b.
func within(a, b string, n int) bool {
	if len(a)-len(b) > n || len(b)-len(a) > n {
		return false
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)] <= n
}

// readText reads a file that is text: UTF-8 without NUL.
func (c *fileCall) readText(name string) (*workspace.File, error) {
	f, err := c.ws.ReadFile(c.at(name), workspace.MaxFile)
	if err != nil {
		return nil, c.fail(name, err)
	}
	if bytes.IndexByte(f.Data, 0) >= 0 {
		return nil, Errorf(CodeNotText, "Cannot read binary file: %s", cleanText(name)).With("size", f.Size)
	}
	if !utf8.Valid(f.Data) {
		return nil, Errorf(CodeEncodingError, "Cannot read %s: it is not valid UTF-8 (byte %d)", cleanText(name), firstInvalid(f.Data)).
			With("size", f.Size)
	}
	return f, nil
}

func firstInvalid(data []byte) int {
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n <= 1 {
			return i
		}
		i += n
	}
	return len(data)
}

// cleanText makes a name or line of a file fit for a result: valid UTF-8, one line.
func cleanText(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r == 0x7f {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

// cleanName is cleanText for names of files, which can also mislead by marks that are not seen.
func cleanName(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Cf, r) {
			return '?'
		}
		return r
	}, cleanText(s))
}

// cutLine shortens a line to n characters.
func cutLine(line string, n int) (string, bool) {
	if len(line) <= n {
		return line, false
	}
	count := 0
	for i := range line {
		if count == n {
			return line[:i], true
		}
		count++
	}
	return line, false
}

func hashed(name, sum string) []*messages.FileHash {
	return []*messages.FileHash{{Path: name, Sha256: sum}}
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
