package tools

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

//go:embed grep.md
var grepDoc string

// Bounds of a search.
const (
	grepMaxPattern = 1000      // bytes of the expression
	grepMaxTotal   = 256 << 20 // bytes of all files
	grepMaxLine    = 256 << 10 // bytes of a line that are searched
	grepMaxSteps   = 16 << 20  // instructions of the expression times bytes of a line: a second or less, as a match is not interrupted
	grepLineChars  = 500       // of a line that is shown
)

// Grep is the tool that searches files for a regular expression (RE2: its time grows with the
// text alone).
func Grep() Tool {
	return &fileTool[grepArgs]{
		spec: &Spec{Name: "grep", Description: grepDoc, Effect: messages.Effect_PURE, Schema: json.RawMessage(`{
"type":"object","additionalProperties":false,"required":["pattern"],"properties":{
"pattern":{"type":"string","description":"Regular expression (RE2), matched line by line."},
"path":{"type":"string","description":"File or directory to search (default: the working directory)."},
"include":{"type":"string","description":"Only files whose name or path matches this glob, as *.go."},
"literal":{"type":"boolean","description":"Take the pattern as plain text (default false)."},
"case_sensitive":{"type":"boolean","description":"Default true."},
"context":{"type":"integer","minimum":0,"maximum":20,"description":"Lines to show around each match (default 0)."},
"max_results":{"type":"integer","minimum":1,"maximum":5000,"description":"Most matching lines to show (default 100)."},
` + workspaceArg + `}}`)},
		run: grepFiles,
	}
}

type grepArgs struct {
	Pattern       string `json:"pattern"`
	Path          string `json:"path"`
	Include       string `json:"include"`
	Literal       bool   `json:"literal"`
	CaseSensitive *bool  `json:"case_sensitive"`
	Context       int    `json:"context"`
	MaxResults    int    `json:"max_results"`
}

// search is one grep under way.
type search struct {
	c       *fileCall
	re      *regexp.Regexp
	include *pattern
	longest int // bytes of a line that are searched
	context int
	out     *listing
	matches int
	most    int
	files   int
	skipped int // binary, too large, or not to be read
	clipped int // lines that were searched at their beginning only
	read    int64
	cut     bool
}

func grepFiles(c *fileCall, a grepArgs) (*Result, error) {
	s, err := newSearch(c, a)
	if err != nil {
		return nil, err
	}
	start := c.at(orHere(a.Path))
	info, err := c.ws.Stat(start)
	if err != nil {
		return nil, c.fail(orHere(a.Path), err)
	}
	if info.IsDir() {
		var cut bool
		cut, err = c.ws.Walk(c.ctx, start, s.visit)
		s.cut = s.cut || cut
	} else {
		var f *workspace.File
		if f, err = c.ws.ReadFile(start, workspace.MaxFile); err == nil {
			err = s.file(f)
		}
	}
	if err != nil && !errors.Is(err, workspace.Stop) {
		return nil, c.fail(orHere(a.Path), err)
	}
	result := s.out.result("(no matches)", s.cut, "narrow the pattern, path or include")
	if s.clipped > 0 {
		result.Content += fmt.Sprintf("[%d long %s searched in the first %d bytes only]\n", s.clipped, plural(s.clipped, "line was", "lines were"), s.longest)
	}
	result.Meta = map[string]any{"matches": s.matches, "files": s.files, "skipped": s.skipped}
	return result, nil
}

func newSearch(c *fileCall, a grepArgs) (*search, error) {
	if a.Pattern == "" || len(a.Pattern) > grepMaxPattern {
		return nil, refuse("the pattern must have 1 to %d bytes", grepMaxPattern)
	}
	expression := a.Pattern
	if a.Literal {
		expression = regexp.QuoteMeta(expression)
	}
	if a.CaseSensitive != nil && !*a.CaseSensitive {
		expression = "(?i)" + expression
	}
	re, err := regexp.Compile(expression)
	if err != nil {
		return nil, refuse("the pattern does not compile: %v (set literal to search for plain text)", err)
	}
	s := &search{c: c, re: re, longest: longestLine(expression), context: a.Context, most: a.MaxResults, out: newListing(1<<20, 0)}
	if s.most == 0 {
		s.most = 100
	}
	if a.Include != "" {
		if s.include, err = compilePattern(a.Include, true); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *search) visit(e *workspace.Entry) error {
	if !e.Mode.IsRegular() {
		return nil
	}
	if s.include != nil && !s.include.match(e.Name) && !s.include.match(belowStart(e)) {
		return nil
	}
	if s.read+e.Size > grepMaxTotal {
		s.cut = true
		return workspace.Stop
	}
	f, err := e.ReadFile(workspace.MaxFile)
	if err != nil { // too large, a second hard link, no permission, vanished
		s.skipped++
		return nil //nolint:nilerr // one file less; the number is told
	}
	return s.file(f)
}

// file searches one file and shows its matches with the lines around them.
func (s *search) file(f *workspace.File) error {
	s.read += f.Size
	if bytes.IndexByte(f.Data, 0) >= 0 {
		s.skipped++
		return nil
	}
	data := bytes.TrimSuffix(f.Data, []byte("\n"))
	hits, err := s.hits(data)
	if err != nil || len(hits) == 0 {
		return err
	}
	s.files++
	name, next := s.c.show(f.Path), place{} // next: the first line that was not shown
	for i, hit := range hits {
		if s.matches == s.most {
			s.cut = true
			return workspace.Stop
		}
		last := hit.n + s.context
		if i+1 < len(hits) {
			last = min(last, hits[i+1].n-1)
		}
		first := hit.back(data, min(s.context, hit.n-next.n))
		if s.context > 0 && len(s.out.lines) > 0 && (next.n == 0 || first.n > next.n) && !s.out.add("--") {
			return workspace.Stop
		}
		for next = first; next.n <= last && next.at <= len(data); {
			line := next.line(data)
			if !s.out.add(grepLine(name, next.n, []byte(s.c.clean(string(line[:min(len(line), grepMaxLine)]))), next.n == hit.n)) {
				return workspace.Stop
			}
			next = next.after(line)
		}
		s.matches++
	}
	return nil
}

// place is where a line of a file begins. Lines are found one after the other: a list of those of a file of empty lines would
// take two dozen times its size.
type place struct{ n, at int }

// line is the line at the place, without its end.
func (p place) line(data []byte) []byte {
	if i := bytes.IndexByte(data[p.at:], '\n'); i >= 0 {
		return data[p.at : p.at+i]
	}
	return data[p.at:]
}

// after is the place of the line that follows. Behind the last one it is beyond the data.
func (p place) after(line []byte) place { return place{p.n + 1, p.at + len(line) + 1} }

// back is the place some lines before, no more than there are.
func (p place) back(data []byte, lines int) place {
	for ; lines > 0; lines-- {
		p = place{p.n - 1, bytes.LastIndexByte(data[:p.at-1], '\n') + 1}
	}
	return p
}

// hits lists the matching lines, no more than are still wanted and one. It looks at each of them, and how much of one is searched
// is bounded by what the expression costs: no match can be interrupted.
func (s *search) hits(data []byte) (hits []place, err error) {
	if prefix, _ := s.re.LiteralPrefix(); !bytes.Contains(data, []byte(prefix)) {
		return nil, nil // most files: no need to look at lines
	}
	since := 0
	for p := (place{}); p.at <= len(data); {
		line := p.line(data)
		if since += len(line); since >= s.longest || p.n%256 == 0 {
			if since = 0; s.c.ctx.Err() != nil {
				return nil, s.c.ctx.Err()
			}
		}
		text := bytes.TrimSuffix(line, []byte("\r"))
		if len(text) > s.longest {
			text = text[:s.longest]
			s.clipped++
		}
		if s.re.Match(text) {
			if hits = append(hits, p); len(hits) > s.most-s.matches {
				break
			}
		}
		p = p.after(line)
	}
	return hits, nil
}

// longestLine is how much of a line an expression is matched with. Its time is that of its program's length times the text's.
func longestLine(expression string) int {
	tree, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return grepMaxLine
	}
	prog, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return grepMaxLine
	}
	return min(grepMaxLine, grepMaxSteps/len(prog.Inst))
}

func grepLine(name string, n int, line []byte, match bool) string {
	mark := "-"
	if match {
		mark = ":"
	}
	text, long := cutLine(cleanText(strings.TrimSuffix(string(line[:min(len(line), 4*grepLineChars)]), "\r")), grepLineChars)
	if long || len(line) > 4*grepLineChars {
		text += "..."
	}
	return fmt.Sprintf("%s%s%d%s %s", name, mark, n+1, mark, text)
}
