package pipeline

import (
	"fmt"
	"strings"

	"github.com/troupe-dev/troupe/internal/yamldoc"
)

// place is where something stands in a file; the zero value is nowhere.
type place struct{ line, col int }

// Problem is something wrong with a pipeline, told so that it can be put right.
type Problem struct {
	What, Fix string
	File      string
	Line, Col int // from 1; 0: the file as a whole
	Excerpt   string
}

// Error is the problem on several lines: where and what, the excerpt, what to do.
func (p *Problem) Error() string {
	at := yamldoc.Printable(p.File)
	if p.Line > 0 {
		at += fmt.Sprintf(":%d:%d", p.Line, p.Col)
	}
	return yamldoc.Told(at+": "+p.What, p.Excerpt, p.Fix)
}

// Problems are all that were found at once. As an error it is never empty.
type Problems []*Problem

// Error is every problem, one after the other.
func (ps Problems) Error() string { return yamldoc.Together(ps) }

// maxProblems are told of one file.
const maxProblems = 50

// source is a text with its name, and what is wrong with it so far.
type source struct {
	path     string
	lines    []string
	problems Problems
	last     reached // where find has found something last
	exprs    int     // how many expressions there are
}

func newSource(path, text string) *source {
	return &source{path: path, lines: strings.Split(text, "\n")}
}

// full says whether no more is told: what to do about it need not be looked for.
func (s *source) full() bool { return len(s.problems) >= maxProblems }

func (s *source) fail(at place, what, fix string) {
	if !s.full() {
		s.problems = append(s.problems, &Problem{
			What: what, Fix: fix, File: s.path, Line: at.line, Col: at.col, Excerpt: yamldoc.Excerpt(s.lines, at.line, at.col, nil),
		})
	}
}
