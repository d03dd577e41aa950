package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/model/canned"
)

// Recorder writes down the calls of models. It is safe for concurrent use.
type Recorder struct {
	// Torn says that the file ended in the middle of a record when it was opened, which was then taken off; "" when it was whole.
	Torn string

	*patterns
	path   string
	redact Redactor
	made   bool // the file was not there

	mu       sync.Mutex
	f        *os.File
	size     int64  // as we left it
	head     []byte // what begins this life of the file, until its first call is written
	of       *Recording
	answered map[sum]*call // the newest call after which the messages are these
	heads    map[sum]*call // the newest call with this system prompt and these tools
	toolsets map[sum]*call
	err      error // the first
	wrote    int
}

// Open makes a file to record in, for its owner alone, or goes on with one: what is recorded now is added. redact takes secrets out; nil:
// nothing is secret. A file that is not a recording is refused, and stays as it is. One that was made is removed by Close when there was no call.
func Open(path string, redact Redactor) (*Recorder, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("record in %s: it is no file", path)
	}
	made := errors.Is(err, fs.ErrNotExist)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600) //nolint:gosec // who records names it
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	r := &Recorder{path: path, redact: redact, made: made, f: f, answered: map[sum]*call{}, heads: map[sum]*call{}, toolsets: map[sum]*call{}}
	if err := r.begin(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	r.patterns = r.of.patterns
	return r, nil
}

// begin reads what is there. The first call that is recorded begins another life of the file.
func (r *Recorder) begin() error {
	data, err := io.ReadAll(io.LimitReader(r.f, maxFileBytes+1))
	if err != nil {
		return fmt.Errorf("record in %s: %w", r.path, err)
	}
	r.of = &Recording{Name: titled(r.path), file: r.path, patterns: newPatterns()}
	if len(data) > 0 {
		if r.of, err = read(r.path, data); err != nil {
			return fmt.Errorf("record in %s: %w", r.path, err)
		}
	}
	if r.of.Torn != "" {
		r.Torn = r.of.Torn
		if err := os.Truncate(r.path, int64(r.of.whole)); err != nil { // by itself: on Windows who appends may not
			return fmt.Errorf("record in %s: take off what is cut off: %w", r.path, err)
		}
		data = data[:r.of.whole]
	}
	for _, c := range r.of.calls {
		r.know(c)
	}
	if err := r.f.Chmod(0o600); err != nil {
		return fmt.Errorf("record in %s: %w", r.path, err)
	}
	r.size = int64(len(data))
	r.head, err = encode(header{version})
	if r.of.whole > 0 && data[len(data)-1] != '\n' {
		r.head = append([]byte("\n"), r.head...)
	}
	return err
}

// know takes a call into what later ones are told apart by.
func (r *Recorder) know(c *call) {
	if c.doc.Answer != nil {
		r.answered[c.answered] = c
	}
	r.heads[c.head], r.toolsets[toolsSum(c.tools)] = c, c
}

// write adds whole records at once: who is killed leaves at most the last one unfinished.
func (r *Recorder) write(b []byte) error {
	if info, err := r.f.Stat(); err != nil || info.Size() != r.size {
		if err == nil {
			err = errors.New("somebody else has written to it meanwhile")
		}
		return fmt.Errorf("record in %s: %w", r.path, err)
	}
	if r.size+int64(len(b)) > maxFileBytes {
		return fmt.Errorf("record in %s: it would have more than %d bytes", r.path, maxFileBytes)
	}
	n, err := r.f.Write(b)
	r.size += int64(n)
	if err != nil {
		return fmt.Errorf("record in %s: %w", r.path, err)
	}
	return nil
}

// Close ends the recording, and gives the first error that there was: what was asked after it is not recorded.
func (r *Recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.f == nil {
		return r.err
	}
	err := r.f.Sync()
	err = errors.Join(err, r.f.Close())
	r.f = nil
	if info, serr := os.Stat(r.path); r.made && r.wrote == 0 && serr == nil && info.Size() == 0 {
		err = errors.Join(err, os.Remove(r.path))
	}
	if err != nil {
		err = fmt.Errorf("record in %s: %w", r.path, err)
	}
	if r.err == nil {
		r.err = err
	}
	return r.err
}

// Model has the calls of a model recorded. window is its context window in tokens; 0: not known. An answer is in the file before its end is
// given to who asked. A call that is cancelled is not recorded, nor is what had arrived of one that failed.
func (r *Recorder) Model(m model.Model, window int64) model.Model { return &recorded{r, m, window} }

type recorded struct {
	r      *Recorder
	of     model.Model
	window int64
}

// Attempts is the model's own; see model.Attempts.
func (m *recorded) Attempts() int { return model.Attempts(m.of) }

// Unplayed are those of the model, where it plays something: of what is being recorded nothing is left over.
func (m *recorded) Unplayed() []string {
	if p, ok := m.of.(interface{ Unplayed() []string }); ok {
		return p.Unplayed()
	}
	return nil
}

// Stream implements model.Model.
func (m *recorded) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		var seen []model.Event
		for ev, err := range m.of.Stream(ctx, req) {
			if err != nil {
				m.failed(ctx, req, err)
				yield(model.Event{}, err)
				return
			}
			seen = append(seen, ev)
			if ev.Kind == model.Finish {
				m.answered(req, seen)
			}
			if !yield(ev, nil) {
				return
			}
		}
	}
}

func (m *recorded) answered(req *model.Request, seen []model.Event) {
	said, err := model.Collect(func(yield func(model.Event, error) bool) {
		for _, ev := range seen {
			if !yield(ev, nil) {
				return
			}
		}
	}, nil)
	if err != nil { // who asks finds that, too, and asks again
		return
	}
	m.record(req, func(d *document, n *names) {
		a := &answer{Text: text(n.said(said.Text)), Finish: said.Reason}
		for _, c := range said.ToolCalls {
			a.Calls = append(a.Calls, toolCall{ID: n.clean(c.GetId()), Name: n.clean(c.GetName()), Arguments: n.arguments(c.GetArguments())})
		}
		if u := said.Usage; u != nil {
			a.Usage = &usage{Input: u.GetInputTokens(), Output: u.GetOutputTokens(), Cached: u.GetCachedTokens(), Reasoning: u.GetReasoningTokens()}
		}
		a.Reasoning = text(n.said(said.Reasoning)) // after what later requests have of it
		d.Answer = a
	})
}

func (m *recorded) failed(ctx context.Context, req *model.Request, err error) {
	var me *model.Error
	if ctx.Err() != nil || !errors.As(err, &me) {
		return // nobody's answer: it was cancelled
	}
	if _, known := canned.StatusOf(me.Class); !known {
		return // there is no model; or what failed is known to this one alone
	}
	m.record(req, func(d *document, n *names) {
		d.Error = &callError{Class: me.Class, Message: n.loose(n.stable(me.Message), true)}
		if isStatus(me.Status) {
			d.Error.Status = me.Status
		}
	})
}

func (m *recorded) record(req *model.Request, came func(*document, *names)) {
	d := document{Window: m.window}
	if n := m.Attempts(); n > 1 {
		d.Attempts = n
	}
	m.r.record(req, d, came)
}

// record adds a call to the file.
func (r *Recorder) record(req *model.Request, d document, came func(*document, *names)) {
	n := r.normalise(req, r.redact)
	d.Agent, d.Model, d.MaxTokens = n.agent, n.names.clean(req.Model), req.MaxTokens
	if filepath.IsAbs(d.Model) { // a script's file, which lies elsewhere elsewhere
		d.Model = filepath.Base(d.Model)
	}
	came(&d, n.names)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil || r.f == nil {
		return
	}
	r.link(&d, n)
	b, err := encode(&d)
	if what, _ := d.wrong(); err == nil && what != "" { // it could not be read again
		err = fmt.Errorf("record in %s: %s", r.path, what)
	}
	if err == nil {
		err = r.write(append(r.head, b...))
		r.head = nil
	}
	if err != nil {
		r.err = fmt.Errorf("%w: call %d, and all after it, are not recorded", err, d.Call)
		return
	}
	c := &call{doc: d}
	c.settle(r.of)
	r.of.calls = append(r.of.calls, c)
	r.know(c)
	r.wrote++
}

// link writes down of a request what it does not have in common with earlier ones.
func (r *Recorder) link(d *document, n *normal) {
	d.Call, d.Messages = len(r.of.calls)+1, n.messages
	var base *call
	for i, s := range slices.Backward(chain(sum{}, n.messages)) {
		if c := r.answered[s]; c != nil {
			d.After, d.Messages, base = c.doc.Call, n.messages[i+1:], c
			break
		}
	}
	if base == nil || base.head != head(n.system, n.tools) {
		other := r.heads[head(n.system, n.tools)]
		if other == nil && (base == nil || toolsSum(base.tools) != toolsSum(n.tools)) {
			other = r.toolsets[toolsSum(n.tools)]
		}
		if other != nil {
			d.Setup, base = other.doc.Call, other
		}
	}
	if base == nil || base.system != n.system {
		d.System = (*text)(&n.system)
	}
	if base == nil && len(n.tools) > 0 || base != nil && toolsSum(base.tools) != toolsSum(n.tools) {
		tools := slices.Clone(n.tools)
		if tools == nil {
			tools = []tool{}
		}
		d.Tools = &tools
	}
}

// Calls is how many calls this recorder has written.
func (r *Recorder) Calls() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wrote
}
