package policy

import "strings"

// plainWords reads a command of which it is plain what a shell reads: words of letters, digits and a few signs without
// a meaning, of which the first is no word of the shell's own. nil: only a parser can tell. Nearly every
// command and pattern is one, and a parser costs a thousand times as much.
func plainWords(command string) []string {
	for i := range len(command) {
		switch c := command[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte(" \t_-./:@%+,", c) >= 0:
		default:
			return nil
		}
	}
	words := strings.Fields(command)
	if len(words) == 0 || ownWord(words[0]) {
		return nil
	}
	return words
}

// ownWord knows the words that make more of a command than a program and its arguments.
func ownWord(w string) bool {
	switch w {
	case "if", "then", "elif", "else", "fi", "for", "foreach", "while", "until", "do", "done", "case", "esac", "in", "select", "repeat", "end",
		"function", "time", "coproc", "nocorrect", "noglob", "let",
		"declare", "local", "export", "readonly", "typeset", "nameref", "integer", "float":
		return true
	}
	return false
}
