package policy

import (
	"errors"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

const (
	maxCommand = 64 << 10 // bytes; a longer command is not read, and so never allowed by a rule
	maxNesting = 4        // scripts within arguments of shells
	maxRead    = 1 << 20  // bytes of scripts within scripts, all together
)

// word is one word of a command; known is false when only running the command would tell its text.
type word struct {
	text  string
	known bool
}

// simple reads a command that is one simple command of literal words: no chain, pipe, negation,
// background, redirection, here-document, assignment, substitution, expansion, glob, brace, function
// or reserved word, and on one line of printable characters. Quotes are removed.
func simple(command string) ([]string, *flaw) {
	if f := plainText(command); f != nil {
		return nil, f
	}
	if words := plainWords(command); words != nil {
		return words, nil
	}
	file, err := parse(command, syntax.LangBash)
	if err != nil {
		var pe syntax.ParseError
		if errors.As(err, &pe) {
			return nil, &flaw{int(pe.Pos.Offset()), "not a command: " + pe.Text}
		}
		return nil, &flaw{0, "not a command: " + err.Error()}
	}
	if len(file.Stmts) == 0 {
		return nil, &flaw{0, "no command"}
	}
	if len(file.Stmts) > 1 {
		return nil, &flaw{int(file.Stmts[1].Pos().Offset()), "more than one command"}
	}
	st := file.Stmts[0]
	call, ok := st.Cmd.(*syntax.CallExpr)
	switch {
	case !ok:
		return nil, &flaw{int(st.Pos().Offset()), "not a simple command"}
	case st.Semicolon.IsValid():
		return nil, &flaw{int(st.Semicolon.Offset()), "a command is not ended or sent to the background here"}
	case st.Negated || st.Background || st.Coprocess || st.Disown:
		return nil, &flaw{int(st.Pos().Offset()), "not a simple command"}
	case len(st.Redirs) > 0:
		return nil, &flaw{int(st.Redirs[0].Pos().Offset()), "a redirection"}
	case len(call.Assigns) > 0:
		return nil, &flaw{int(call.Assigns[0].Pos().Offset()), "an assignment"}
	}
	words := make([]string, len(call.Args))
	for i, a := range call.Args {
		w := literal(a)
		if !w.known || i == 0 && w.text == "" {
			return nil, &flaw{int(a.Pos().Offset()), "a word that is not literal"}
		}
		words[i] = w.text
	}
	return words, nil
}

// plainText refuses what a person reading the command would not see as it is.
func plainText(command string) *flaw {
	if len(command) > maxCommand {
		return &flaw{maxCommand, "the command is too long"}
	}
	for i, r := range command {
		switch {
		case r == utf8.RuneError:
			return &flaw{i, "the command is no valid UTF-8"}
		case r == ' ' || r == '\t':
		case unicode.IsControl(r):
			return &flaw{i, "a line break or control character"}
		case !unicode.IsPrint(r): // other spaces, marks of direction, characters without a shape
			return &flaw{i, "a character that cannot be seen"}
		}
	}
	return nil
}

func parse(command string, lang syntax.LangVariant) (*syntax.File, error) {
	return syntax.NewParser(syntax.Variant(lang)).Parse(strings.NewReader(command), "")
}

// commandsIn lists every command that a script holds, in substitutions, functions and here-documents
// too, and those that launchers run; false when it cannot be read. It is read as bash and as
// sh: where the two differ, both readings count.
func commandsIn(command string) ([][]word, bool) {
	var l list
	ok := l.script(command, 0)
	return l.cmds, ok && !l.lost
}

// list gathers commands.
type list struct {
	cmds [][]word
	read int  // bytes so far
	lost bool // something was nested too deep or was too long
}

func (l *list) script(command string, depth int) bool {
	if l.lost || len(command) > maxCommand || l.read+len(command) > maxRead || depth > maxNesting {
		l.lost = true
		return false
	}
	l.read += len(command)
	if words := plainWords(command); words != nil {
		c := make([]word, len(words))
		for i, w := range words {
			c[i] = word{w, true}
		}
		l.add(c, depth)
		return true
	}
	file, err := parse(command, syntax.LangBash)
	if err != nil {
		return false
	}
	l.walk(file, depth)
	if file, err = parse(command, syntax.LangPOSIX); err == nil {
		l.walk(file, depth)
	}
	return true
}

func (l *list) walk(file *syntax.File, depth int) {
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CallExpr:
			if len(n.Args) > 0 {
				c := make([]word, len(n.Args))
				for i, a := range n.Args {
					c[i] = literal(a)
				}
				l.add(c, depth)
			}
		case *syntax.DeclClause: // export, declare: what they set is not followed
			l.add([]word{{n.Variant.Value, true}, {}}, depth)
		}
		return true
	})
}

// add takes a command, and what it launches.
func (l *list) add(c []word, depth int) {
	l.cmds = append(l.cmds, c)
	if !c[0].known {
		return
	}
	name := program(c[0])
	switch {
	case name == "find" || name == "fd":
		for i, w := range c[1:] {
			if w.known && findAction(w.text) && i+2 < len(c) {
				l.launched(name, c[i+2:], depth)
			}
		}
	case isLauncher(name):
		if fromInput(c) {
			l.cmds = append(l.cmds, []word{{}})
		}
		l.launched(name, c[1:], depth)
	}
}

// program is the name of a program without its folder.
func program(w word) string { return strings.ToLower(path.Base(w.text)) }

// fromInput says whether a command is a shell that reads its script from its input.
func fromInput(c []word) bool {
	if !c[0].known || !isShell(program(c[0])) {
		return false
	}
	for _, w := range c[1:] {
		if w.known && w.text == "-s" {
			return true
		}
		if !w.known || !strings.HasPrefix(w.text, "-") {
			return false
		}
	}
	return true
}

// launched takes every word behind a launcher for the beginning of a command, and for a script.
func (l *list) launched(name string, args []word, depth int) {
	for i, w := range args {
		l.cmds = append(l.cmds, args[i:])
		if !w.known {
			continue
		}
		if fromInput(args[i:]) {
			l.cmds = append(l.cmds, []word{{}})
		}
		if strings.ContainsAny(w.text, " \t\n;&|(){}$`<>\\\"'") && !l.script(w.text, depth+1) && readsScripts(name) {
			l.cmds = append(l.cmds, []word{{}})
		}
	}
	if readsScripts(name) && !l.joined(args, depth) {
		l.cmds = append(l.cmds, []word{{}})
	}
}

// joined reads all the words together, as eval and ssh do.
func (l *list) joined(args []word, depth int) bool {
	texts := make([]string, len(args))
	for i, w := range args {
		if !w.known {
			return false
		}
		texts[i] = w.text
	}
	return len(texts) < 2 || isOption(texts[0]) || l.script(strings.Join(texts, " "), depth+1)
}

func isOption(s string) bool { return strings.HasPrefix(s, "-") }
