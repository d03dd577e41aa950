// Package script answers model requests from a YAML script, so that everything but the language
// model itself can be run, shown and tested without one. Which reply comes next is a function
// of the request's messages alone, never of what was asked before: a call that is repeated
// after a crash gets the same answer. docs/scripts.md describes the format.
//
// A script plays in process ([Script.Model]) or behind an OpenAI-compatible HTTP endpoint
// ([Handler]); model/canned does both.
package script

import (
	"embed"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model/canned"
)

// Script is a checked script. It is immutable and safe for concurrent use.
type Script struct {
	Name        string // letters, digits, dot, dash and underscore
	Description string
	rules       []rule
	failing     int // replies that fail a number of times
	replies     int
	src         source
}

// rule is a condition on a request and what to answer.
type rule struct {
	agent string
	match *regexp.Regexp
	turn  int     // from 1; 0 is any
	step  int     // from 0; -1 is any
	tool  string  // a result of this tool must have just come in
	holds string  // and contain this
	after bool    // any result must have just come in
	plays []reply // one per step when steps is set, else the one
	steps bool
}

// reply is one answer.
type reply struct {
	text, reasoning template
	calls           []call
	delay, pause    time.Duration
	chunk           int // characters; 0: as usual
	usage           *messages.Usage
	finish          string
	fail            *failure
	cut             int // characters after which the stream breaks off; -1: never
	garbage         bool
	slot            int    // of the player's marks
	path            string // in the document
}

type call struct {
	name string
	id   string // empty: made from the position
	args arguments
}

type failure struct {
	canned.Failure
	times int // 0: always
	slot  int // of the player's counters
}

const maxFileBytes = 4 << 20

// Load reads the script in a file. Its name is the document's own, or the file's.
func Load(path string) (*Script, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read script: %w", err)
	}
	if !info.Mode().IsRegular() { // a pipe may never give anything, and some devices never end
		return nil, fmt.Errorf("read script %s: it is no regular file", path)
	}
	if info.Size() > maxFileBytes {
		return nil, fmt.Errorf("read script %s: larger than %d bytes", path, maxFileBytes)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read script: %w", err)
	}
	return Parse(path, data)
}

//go:embed builtin
var builtin embed.FS

// Builtin returns a script that comes with the program: tour, which repairs examples/broken,
// and echo, which says back what it was told.
func Builtin(name string) (*Script, error) {
	data, err := builtin.ReadFile("builtin/" + name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("no built-in script %q: there are %s", name, strings.Join(Builtins(), ", "))
	}
	return Parse(name+".yaml", data)
}

// Builtins lists the built-in scripts by name, sorted.
func Builtins() []string {
	entries, err := builtin.ReadDir("builtin")
	if err != nil { // embedded: cannot happen
		return nil
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".yaml"); ok {
			names = append(names, name)
		}
	}
	return names
}

// TourFiles returns the package that the built-in script tour repairs, by file name: the files
// of examples/broken, which being a module of its own cannot be embedded from there.
func TourFiles() (map[string][]byte, error) {
	const dir = "builtin/broken"
	entries, err := builtin.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the files of the tour: %w", err)
	}
	files := make(map[string][]byte, len(entries))
	for _, e := range entries {
		data, err := builtin.ReadFile(dir + "/" + e.Name())
		if err != nil {
			return nil, fmt.Errorf("read the files of the tour: %w", err)
		}
		files[strings.TrimSuffix(e.Name(), ".txt")] = data
	}
	return files, nil
}

// arguments are a template of JSON: a tree whose strings are templates, or raw text.
type arguments struct {
	fixed []byte // when nothing in them varies
	tree  any    // map[string]any, []any, template, or a plain value
	raw   *template
}

func (a *arguments) render(v *view) (string, error) {
	switch {
	case a.fixed != nil:
		return string(a.fixed), nil
	case a.raw != nil:
		return a.raw.render(v), nil
	}
	b, err := canned.JSON(fill(a.tree, v))
	return string(b), err
}

func fill(tree any, v *view) any {
	switch x := tree.(type) {
	case template:
		return x.render(v)
	case map[string]any:
		out := make(map[string]any, len(x))
		for k, e := range x {
			out[k] = fill(e, v)
		}
		return out
	case []any:
		out := make([]any, len(x))
		for i, e := range x {
			out[i] = fill(e, v)
		}
		return out
	}
	return tree
}
