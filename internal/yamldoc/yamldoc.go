// Package yamldoc reads YAML that people write and that may be hostile: one document, bounded, with
// the place of everything in it, and errors that show the line with a caret. What the keys mean is
// for those who read: the configuration, and pipelines.
package yamldoc

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Bounds of nesting. The YAML parser needs more than linear time for deep flow nesting.
const (
	maxFlow   = 32  // [ and { open at the same time
	maxDashes = 100 // in a row, be they lists in lists or a ruler in a comment
)

// Fault is why a text is no document. Line and Col count from 1; 0: the file as a whole.
type Fault struct {
	Line, Col int
	What, Fix string
}

// Trim takes off what some editors begin files with.
func Trim(src []byte) []byte { return bytes.TrimPrefix(src, []byte("\ufeff")) }

// Parse gives the body of the only document of at most most bytes; nil if there is none. noun is what the document is, as in "a configuration".
func Parse(src []byte, most int, noun string) (ast.Node, *Fault) {
	if f := precheck(src, most, noun); f != nil {
		return nil, f
	}
	return parse(src, noun)
}

// precheck refuses what is no text or would take the parser too long.
func precheck(src []byte, most int, noun string) *Fault {
	if len(src) > most {
		return &Fault{What: fmt.Sprintf("the file has %d bytes; %s has at most %d", len(src), noun, most)}
	}
	line, col, flow, dashes := 1, 0, 0, 0
	for i := 0; i < len(src); {
		r, n := utf8.DecodeRune(src[i:])
		i, col = i+n, col+1
		switch {
		case r == utf8.RuneError && n == 1:
			return &Fault{line, col, "the file is not UTF-8", ""}
		case r == '\n':
			line, col = line+1, 0
		case r < 0x20 && r != '\t' && r != '\r' || r == 0x7f:
			return &Fault{line, col, fmt.Sprintf("control character %U", r), "remove it"}
		case r == '[' || r == '{':
			flow++
		case (r == ']' || r == '}') && flow > 0:
			flow--
		}
		switch r {
		case '-':
			dashes++
		case ' ':
		default:
			dashes = 0
		}
		if flow > maxFlow || dashes > maxDashes {
			return &Fault{line, col, "lists or brackets are nested too deeply", ""}
		}
	}
	return nil
}

func parse(src []byte, noun string) (body ast.Node, fault *Fault) {
	defer func() {
		if r := recover(); r != nil { // a bug of the parser must not let a folder's file stop the program
			body, fault = nil, &Fault{What: "the file cannot be parsed as YAML", Fix: "simplify it"}
		}
	}()
	f, err := parser.ParseBytes(src, 0)
	if err != nil {
		return nil, syntax(err)
	}
	if len(f.Docs) > 1 {
		line, col := Position(f.Docs[1].GetToken())
		return nil, &Fault{line, col, "a second YAML document begins here", noun + " is one document"}
	}
	if len(f.Docs) == 0 || f.Docs[0].Body == nil || f.Docs[0].Body.Type() == ast.CommentType {
		return nil, nil
	}
	return f.Docs[0].Body, nil
}

// syntax takes over an error of the parser.
func syntax(err error) *Fault {
	if e, ok := err.(yaml.Error); ok { //nolint:errorlint // the parser returns it bare
		line, col := Position(e.GetToken())
		fault := &Fault{Line: line, Col: col, What: "YAML syntax: " + Printable(e.GetMessage())}
		if strings.Contains(e.GetMessage(), "'\t'") {
			fault.What, fault.Fix = "YAML syntax: the line is indented with a tab", "indent with spaces"
		}
		return fault
	}
	return &Fault{What: "YAML syntax: " + Printable(err.Error())}
}
