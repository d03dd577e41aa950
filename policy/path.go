package policy

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// components splits a workspace-relative path; false for one that cannot be compared: absolute,
// empty, with `..`, a backslash, a control character or broken UTF-8. `..` is never resolved here:
// what it leads to depends on links, which only the workspace can walk.
func components(p string) ([]string, bool) {
	if p == "" || p[0] == '/' || !utf8.ValidString(p) || strings.ContainsFunc(p, func(r rune) bool {
		return r == '\\' || unicode.IsControl(r)
	}) {
		return nil, false
	}
	var out []string
	for c := range strings.SplitSeq(p, "/") {
		switch c {
		case "..":
			return nil, false
		case "", ".":
		default:
			out = append(out, c)
		}
	}
	return out, true
}

// parts splits a pattern; `.` is the root, which has no components.
func parts(pattern string) []string {
	if pattern == "." {
		return nil
	}
	return strings.Split(pattern, "/")
}

func pathCovered(pattern, path string, deep bool) bool {
	cs, ok := components(path)
	if !ok {
		return false
	}
	pat := parts(pattern)
	at := reach(pat, cs, false)
	if !deep {
		return at[len(pat)]
	}
	// Everything below is covered only from within a final `**`.
	return len(pat) > 0 && pat[len(pat)-1] == "**" && at[len(pat)-1]
}

// pathTouched ignores case: on some file systems another spelling is the same file.
func pathTouched(pattern, path string, deep bool) bool {
	cs, ok := components(path)
	if !ok {
		return true
	}
	pat := parts(pattern)
	at := reach(pat, cs, true)
	if !deep {
		return at[len(pat)]
	}
	for _, here := range at { // the rest of the pattern may be met by something below
		if here {
			return true
		}
	}
	return false
}

// reach walks the pattern along the path and says in which places it may stand afterwards;
// the last place is the end of the pattern. It costs len(pat) * len(path), whatever the wildcards.
func reach(pat, path []string, fold bool) []bool {
	at := make([]bool, len(pat)+1)
	at[0] = true
	skip(pat, at)
	for _, c := range path {
		next := make([]bool, len(pat)+1)
		for i, p := range pat {
			switch {
			case !at[i]:
			case p == "**":
				next[i] = true
			case componentMatches(p, c, fold):
				next[i+1] = true
			}
		}
		at = next
		skip(pat, at)
	}
	return at
}

// skip lets each `**` stand for nothing.
func skip(pat []string, at []bool) {
	for i, p := range pat {
		if at[i] && p == "**" {
			at[i+1] = true
		}
	}
}

// componentMatches compares one component, `*` being any run of characters and `?` any one.
func componentMatches(pat, s string, fold bool) bool {
	if fold {
		pat, s = strings.ToLower(pat), strings.ToLower(s)
	}
	p, r := []rune(pat), []rune(s)
	i, j := 0, 0
	star, from := -1, 0
	for j < len(r) {
		switch {
		case i < len(p) && p[i] == '*':
			star, from = i, j
			i++
		case i < len(p) && (p[i] == '?' || p[i] == r[j]):
			i++
			j++
		case star >= 0: // let the last * take one character more
			from++
			i, j = star+1, from
		default:
			return false
		}
	}
	for i < len(p) && p[i] == '*' {
		i++
	}
	return i == len(p)
}

func checkPathPattern(pattern string) *flaw {
	if pattern[0] == '/' {
		return &flaw{0, "a path pattern is relative to the workspace and has no leading /"}
	}
	if !utf8.ValidString(pattern) {
		return &flaw{0, "the pattern is no valid UTF-8"}
	}
	for i, r := range pattern {
		if r == '\\' || unicode.IsControl(r) {
			return &flaw{i, "a path pattern holds no backslash and no control character"}
		}
	}
	at := 0
	for c := range strings.SplitSeq(pattern, "/") {
		switch {
		case c == "":
			return &flaw{at, "an empty component in a path pattern"}
		case c == "..":
			return &flaw{at, "a path pattern cannot lead upwards"}
		case c == "." && pattern != ".":
			return &flaw{at, "a component . says nothing in a path pattern"}
		case c != "**" && strings.Contains(c, "**"):
			return &flaw{at, "** stands for whole components: write a/**/b"}
		}
		at += len(c) + 1
	}
	return nil
}

// validHost says whether h is a name or address that can be compared with a pattern.
func validHost(h string) bool {
	h = strings.TrimSuffix(h, ".")
	if h == "" || h[0] == '.' || strings.Contains(h, "..") {
		return false
	}
	for _, c := range []byte(h) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '.', c == ':':
		default:
			return false
		}
	}
	return true
}

// hostMatches compares without regard to case or a final dot. A pattern `*.name` wants at least
// one label more than name: a valid host does not begin with a dot.
func hostMatches(pattern, host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	pattern = strings.ToLower(strings.TrimSuffix(pattern, "."))
	if suffix, ok := strings.CutPrefix(pattern, "*"); ok {
		return strings.HasSuffix(host, suffix)
	}
	return host == pattern
}

func checkHostPattern(pattern string) *flaw {
	name, at := pattern, 0
	if after, ok := strings.CutPrefix(pattern, "*."); ok {
		name, at = after, 2
	}
	if i := strings.IndexByte(name, '*'); i >= 0 {
		return &flaw{at + i, "a host pattern has a * only as its first label: *.example.org"}
	}
	if !validHost(name) {
		return &flaw{at, "no host name in ASCII form, without scheme, port or path"}
	}
	return nil
}
