package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/troupe-dev/troupe/internal/yamldoc"
)

const (
	maxFile     = 128 << 10 // bytes
	maxProblems = 50        // told of one file
)

// setting is one value of one layer.
type setting struct {
	path    string
	shape   *shape
	text    string   // of scalars
	list    []string // of lists
	origin  Origin
	excerpt string
}

// layer is what one source says.
type layer struct {
	source   Source
	settings map[string]*setting
	names    map[string][]string // path of a mapping or entries -> its keys, in order
	marks    map[string]*setting // the same keys by path, for their origins
}

func newLayer(source Source) *layer {
	return &layer{source: source, settings: map[string]*setting{}, names: map[string][]string{}, marks: map[string]*setting{}}
}

// name records a key of a mapping or a place in entries.
func (l *layer) name(path, key string, origin Origin, excerpt string) {
	p := child(path, key)
	if l.marks[p] == nil {
		l.names[path] = append(l.names[path], key)
		l.marks[p] = &setting{path: p, origin: origin, excerpt: excerpt}
	}
}

// decoder turns one file into a layer, collecting every problem rather than the first.
type decoder struct {
	file     string
	lines    []string
	layer    *layer
	lower    []*layer // weaker ones
	problems Problems
}

// decodeFile reads a file's text strictly. lower are the weaker layers.
func decodeFile(source Source, file string, src []byte, root *shape, lower []*layer) (*layer, Problems) {
	src = yamldoc.Trim(src)
	d := &decoder{file: file, lines: strings.Split(string(src), "\n"), layer: newLayer(source), lower: lower}
	doc, fault := yamldoc.Parse(src, maxFile, "a configuration")
	if fault != nil {
		d.fail("", fault.Line, fault.Col, fault.What, fault.Fix)
	}
	if doc != nil {
		d.walk(root, "", doc)
	}
	return d.layer, d.problems
}

// walk takes node as the value of the setting that s describes.
func (d *decoder) walk(s *shape, path string, node ast.Node) {
	switch n := node.(type) {
	case *ast.NullNode:
		return // a key without a value sets nothing
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
		d.failAt(node, path, "anchors, aliases and tags are not supported here", "write the value itself")
		return
	case *ast.CommentGroupNode:
		return
	default:
		switch {
		case s.kind == section || s.kind == mapping:
			d.mapping(s, path, n)
		case s.kind == entries || s.kind == list:
			d.sequence(s, path, n)
		default:
			d.scalar(s, path, n)
		}
	}
}

// mapping takes the keys of a section, which are known, or of a mapping, which are the user's.
func (d *decoder) mapping(s *shape, path string, node ast.Node) {
	values, ok := mapValues(node)
	if !ok {
		d.mismatch(s, path, node)
		return
	}
	for _, v := range values {
		key, ok := keyText(v.Key)
		if !ok {
			d.failAt(v.Key, path, "this key is no plain text", "")
			continue
		}
		if s.kind == mapping {
			d.entry(s, path, key, v)
			continue
		}
		f := s.field(key)
		if f == nil {
			d.unknown(s, path, key, v.Key)
			continue
		}
		d.walk(f, child(path, key), v.Value)
	}
}

// entry takes one key of a mapping whose keys are the user's.
func (d *decoder) entry(s *shape, path, key string, v *ast.MappingValueNode) {
	p := child(path, key)
	if why := badName(path, key); why != "" {
		d.failAt(v.Key, p, fmt.Sprintf("%q: %s", key, why), "")
		return
	}
	d.layer.name(path, key, d.origin(v.Key), d.excerptAt(v.Key))
	d.walk(s.elem, p, v.Value)
}

// sequence takes a list. Entries of all files count, so they are numbered through.
func (d *decoder) sequence(s *shape, path string, node ast.Node) {
	seq, ok := node.(*ast.SequenceNode)
	if !ok {
		d.mismatch(s, path, node)
		return
	}
	if s.kind == list {
		d.list(s, path, seq)
		return
	}
	first := 0
	for _, l := range d.lower {
		first += len(l.names[path])
	}
	for i, v := range seq.Values {
		key := fmt.Sprintf("[%d]", first+i)
		d.layer.name(path, key, d.origin(v), d.excerptAt(v))
		d.walk(s.elem, child(path, key), v)
		d.needed(s.elem, child(path, key), v)
	}
}

// needed reports what an entry of a list cannot do without.
func (d *decoder) needed(s *shape, path string, node ast.Node) {
	for _, f := range s.fields {
		if f.need && d.layer.settings[child(path, f.name)] == nil {
			d.failAt(node, path, fmt.Sprintf("an entry of this list needs %q", f.name), "")
		}
	}
}

func (d *decoder) list(s *shape, path string, seq *ast.SequenceNode) {
	out := make([]string, 0, len(seq.Values))
	for _, v := range seq.Values {
		t, ok := scalarText(text, v)
		if !ok {
			d.failAt(v, path, fmt.Sprintf("%s is a list of texts; this is %s", path, describeNode(v)), "put it in quotes")
			return
		}
		if why, fix := s.refuse(t); why != "" {
			d.failAt(v, path, path+": "+why, fix)
			return
		}
		out = append(out, t)
	}
	d.layer.settings[path] = &setting{path: path, shape: s, list: out, origin: d.origin(seq), excerpt: d.excerptAt(seq)}
}

func (d *decoder) scalar(s *shape, path string, node ast.Node) {
	t, ok := scalarText(s.kind, node)
	if !ok {
		d.mismatch(s, path, node)
		return
	}
	if why, fix := s.refuse(t); why != "" {
		d.failAt(node, path, path+": "+why, fix)
		return
	}
	if s.format == "path" && !fileAnchored(t) {
		shown := strconv.Quote(t)
		if s.only != "" { // it may be the key itself
			shown = "the path"
		}
		d.failAt(node, path, fmt.Sprintf("%s: %s is relative, and it is unclear to what", path, shown), "write an absolute path, or one that begins with ~/")
		return
	}
	d.layer.settings[path] = &setting{path: path, shape: s, text: t, origin: d.origin(node), excerpt: d.excerptAt(node)}
}

// unknown reports a key that nothing knows, with what was probably meant.
func (d *decoder) unknown(s *shape, path, key string, node ast.Node) {
	where := ""
	if path != "" {
		where = " in " + path
	}
	fix := didYouMean(key, s.names())
	if slices.Contains([]string{"api_key", "token"}, key) {
		fix = "keys do not stand in configuration files: name a variable (" + key + "_env) or a file (" + key + "_file)"
	}
	d.failAt(node, child(path, key), fmt.Sprintf("unknown key %q%s", printable(key), where), fix)
}

func (d *decoder) mismatch(s *shape, path string, node ast.Node) {
	if path == "" {
		path = "the file"
	}
	d.failAt(node, path, fmt.Sprintf("%s is %s; this is %s", path, s.kind, describeNode(node)), s.kind.example())
}

func (d *decoder) failAt(node ast.Node, path, what, fix string) {
	line, col := position(node.GetToken())
	d.fail(path, line, col, what, fix)
}

func (d *decoder) fail(path string, line, col int, what, fix string) {
	if len(d.problems) == maxProblems {
		return
	}
	d.problems = append(d.problems, &Problem{
		What: what, Path: path, Fix: fix,
		Origin:  Origin{Source: d.layer.source, File: d.file, Line: line, Col: col},
		Excerpt: excerpt(d.lines, line, col),
	})
}

func (d *decoder) origin(node ast.Node) Origin {
	line, col := position(node.GetToken())
	return Origin{Source: d.layer.source, File: d.file, Line: line, Col: col}
}

func (d *decoder) excerptAt(node ast.Node) string {
	line, col := position(node.GetToken())
	return excerpt(d.lines, line, col)
}
