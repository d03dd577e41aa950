package tools

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// The texts by which a refused call can be mended: what is wrong, where, and what would do.

func refuse(format string, args ...any) *Error {
	return Errorf(CodeInvalidArguments, format, args...)
}

// subject names a place in the arguments at the head of a sentence.
func subject(at string) string {
	if at == "" {
		return "the arguments"
	}
	return "argument " + strconv.Quote(clip(at))
}

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

// unknown refuses an argument that the schema does not have.
func (s *schema) unknown(at, name string) *Error {
	text := "unknown " + subject(join(at, name))
	for _, known := range sortedKeys(s.Properties) {
		if strings.EqualFold(known, name) {
			return refuse("%s: names are case-sensitive, did you mean %q?", text, known)
		}
	}
	if near := nearest(name, sortedKeys(s.Properties)); near != "" {
		return refuse("%s; did you mean %q? %s", text, near, s.offer())
	}
	return refuse("%s. %s", text, s.offer())
}

// missing refuses a call without an argument that it must have.
func (s *schema) missing(at, name string) *Error {
	text := "missing required " + subject(join(at, name))
	if p := s.Properties[name]; p != nil {
		text += " (" + p.want()
		if p.Description != "" {
			text += ": " + clip(p.Description)
		}
		text += ")"
	}
	return refuse("%s", text)
}

// offer lists what the object takes.
func (s *schema) offer() string {
	names := sortedKeys(s.Properties)
	if len(names) == 0 {
		return "It takes no arguments."
	}
	for i, n := range names {
		if slices.Contains(s.Required, n) {
			names[i] = n + " (required)"
		}
	}
	return "It takes: " + strings.Join(names, ", ") + "."
}

// want says in words which types the schema takes.
func (s *schema) want() string {
	words := make([]string, 0, len(s.Type))
	for _, t := range s.Type {
		switch t {
		case "integer", "object", "array":
			t = "an " + t
		case "null":
		default:
			t = "a " + t
		}
		words = append(words, t)
	}
	if len(words) == 0 {
		return "any value"
	}
	return strings.Join(words, " or ")
}

// list writes the values of an enum.
func list(values []any) string {
	words := make([]string, len(values))
	for i, v := range values {
		b, err := json.Marshal(v)
		if err != nil {
			b = []byte("?")
		}
		words[i] = string(b)
	}
	return strings.Join(words, ", ")
}

// nearest returns the name that was probably meant: one that contains the given word or is
// contained in it, or the closest within two letters or a third of them; "" when none is close.
func nearest(word string, names []string) string {
	if len(word) > 100 {
		return ""
	}
	best, bestAt := "", min(max(2, len(word)/3)+1, len(word))
	for _, n := range names {
		if len(n) >= 3 && len(word) >= 3 && (strings.Contains(word, n) || strings.Contains(n, word)) {
			return n
		}
		if d := distance(strings.ToLower(word), n); d < bestAt {
			best, bestAt = n, d
		}
	}
	return best
}

// distance is the number of letters to insert, drop or change between a and b.
func distance(a, b string) int {
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
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
