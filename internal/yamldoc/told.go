package yamldoc

import "strings"

// Told is a problem on several lines: where and what, the excerpt, what to do. The last two may be empty.
func Told(what, excerpt, fix string) string {
	if excerpt != "" {
		what += "\n" + excerpt
	}
	if fix != "" {
		what += "\n  " + fix
	}
	return what
}

// Together is what several problems say, one after the other.
func Together[E error](problems []E) string {
	out := make([]string, len(problems))
	for i, p := range problems {
		out[i] = p.Error()
	}
	return strings.Join(out, "\n")
}
