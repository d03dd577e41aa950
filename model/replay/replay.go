// Package replay records the calls of a model in a file, and plays such a file in a model's place: every request must be one that was recorded.
// docs/recordings.md describes the file, and what is compared.
//
// Which answer a request gets is a function of its content: agents that work side by side do not confuse each other, and a request that is
// repeated after a crash gets its answer again. Nothing is remembered but which of several answers to the very same request were given.
package replay

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/model/canned"
)

// maxFileBytes bounds a recording: it is kept in memory.
const maxFileBytes = 64 << 20

// Redactor takes secrets out of texts; config.NewRedactor makes one.
type Redactor interface {
	String(s string) string
}

// Recording is a checked recording. It is immutable and safe for concurrent use.
type Recording struct {
	Name string // the file's, of letters, digits, dot, dash and underscore: it goes into a header
	// Torn says that the file ends in the middle of a record, and where: who recorded was killed. The record is not used. "" when it is whole.
	Torn string

	*patterns
	file  string
	calls []*call
	byKey map[sum][]*call
	whole int // bytes up to the end of the last whole record
	lives int // how often the file was opened to be written to
}

// Load reads the recording in a file.
func Load(path string) (*Recording, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read recording: %w", err)
	}
	switch {
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("read recording %s: it is no file", path)
	case info.Size() > maxFileBytes:
		return nil, fmt.Errorf("read recording %s: it has %d bytes; a recording has at most %d", path, info.Size(), maxFileBytes)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read recording: %w", err)
	}
	return Parse(path, data)
}

// Parse reads a recording; file is what errors call it. Every error about what stands in it begins with file:line:column.
func Parse(file string, data []byte) (*Recording, error) {
	r, err := read(file, data)
	if err != nil {
		return nil, err
	}
	r.index()
	return r, nil
}

// titled is a file's name as one that headers take.
func titled(file string) string {
	base := filepath.Base(file)
	name := regexp.MustCompile(`[^A-Za-z0-9._-]+`).ReplaceAllString(strings.TrimSuffix(base, filepath.Ext(base)), "-")
	name = strings.TrimLeft(name, "._-")
	if name == "" {
		return "recording"
	}
	return name[:min(len(name), 64)]
}

// Window is the context window of the models that were recorded, in tokens; 0 where they had several, or it was not known. Who plays the
// recording should have the same: what is sent depends on it.
func (r *Recording) Window() int64 {
	var window int64
	for i, c := range r.calls {
		if i > 0 && c.doc.Window != window {
			return 0
		}
		window = c.doc.Window
	}
	return window
}

// attempts is how often the models that were recorded sent a request that nothing came of: as many such failures of a step are one when they are played, too.
func (r *Recording) attempts() int {
	n := 1
	for _, c := range r.calls {
		n = max(n, c.doc.Attempts)
	}
	return n
}

// Options say how a recording is played.
type Options struct {
	// Redact takes the secrets out of requests, as it did when they were recorded. nil: nothing is secret, or who asks has done so.
	Redact Redactor
}

// Model plays the recording in process. Each Model begins anew.
func (r *Recording) Model(o Options) model.Model { return &direct{r.player(o)} }

type direct struct{ p *player }

// Stream implements model.Model.
func (d *direct) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	return canned.Stream(ctx, d.p, req)
}

// Attempts is that of the model that was recorded; see model.Attempts.
func (d *direct) Attempts() int { return d.p.of.attempts() }

// Unplayed are the recorded calls that this model was never asked for, each as file:line: and what it is.
func (d *direct) Unplayed() []string { return d.p.unplayed() }

// Handler serves a recording as an OpenAI-compatible API: see [canned.Handler].
func Handler(r *Recording, o canned.ServeOptions) http.Handler {
	return canned.Handler(r.player(Options{}), o)
}
