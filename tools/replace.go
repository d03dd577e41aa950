package tools

import (
	"fmt"
	"strings"

	"github.com/troupe-dev/troupe/workspace"
)

// edit replaces one text by another.
type edit struct {
	Old        string `json:"old_string"`
	New        string `json:"new_string"`
	ReplaceAll bool   `json:"replace_all"`
}

// applyEdits applies edits one after the other, all or none. name is for the errors.
//
// A match is exact: letter by letter, or else with line ends taken as equal (`\r\n` and `\n`),
// because models do not see them. Nothing looser is ever tried: it would apply something
// other than what was approved.
func applyEdits(name, text string, edits []edit) (string, error) {
	if len(edits) == 0 {
		return "", Errorf(CodeInvalidArguments, "edits is empty: give at least one edit")
	}
	before := text
	for i, e := range edits {
		next, err := e.apply(name, text)
		if err != nil {
			err.Details = map[string]any{"edit": i, "path": name}
			if len(edits) > 1 {
				err.Message += fmt.Sprintf(" (edit %d of %d; none was applied)", i+1, len(edits))
			}
			return "", err
		}
		text = next
	}
	if text == before {
		return "", Errorf(CodeNoChange, "the edits leave %s as it is", name)
	}
	return text, nil
}

func (e edit) apply(name, text string) (string, *Error) {
	if e.Old == "" {
		return "", Errorf(CodeInvalidArguments, "old_string is empty: to make or replace a whole file use write_file")
	}
	if e.Old == e.New {
		return "", Errorf(CodeNoChange, "old_string and new_string are the same")
	}
	at := occurrences(text, e.Old, e.ReplaceAll)
	if len(at) == 0 {
		at = rawPlaces(text, occurrences(unixLines(text), unixLines(e.Old), e.ReplaceAll))
	}
	switch {
	case len(at) == 0:
		return "", Errorf(CodeEditNoMatch, "old_string not found in %s; it must match the file exactly, white space included%s", name, e.hint(text))
	case len(at) > maxOccurrences:
		return "", Errorf(CodeEditNotUnique, "old_string appears more than %d times in %s; provide more context", maxOccurrences, name)
	case len(at) > 1 && !e.ReplaceAll:
		return "", Errorf(CodeEditNotUnique, "old_string appears %d times in %s; provide more context or set replace_all", len(at), name)
	}
	replacement := e.New
	if mostlyCRLF(text) {
		replacement = strings.ReplaceAll(unixLines(e.New), "\n", "\r\n")
	}
	return splice(name, text, at, replacement)
}

// region is a part of a text, in bytes.
type region struct{ from, to int }

// splice puts the replacement into each region.
func splice(name, text string, at []region, replacement string) (string, *Error) {
	size := len(text)
	for _, r := range at {
		size += len(replacement) - (r.to - r.from)
	}
	if size > workspace.MaxFile {
		return "", Errorf(CodeFileTooLarge, "File too large: %s: the edit would make it %d bytes, the limit is %d", name, size, workspace.MaxFile)
	}
	var b strings.Builder
	end := 0
	for _, r := range at {
		b.WriteString(text[end:r.from])
		b.WriteString(replacement)
		end = r.to
	}
	b.WriteString(text[end:])
	return b.String(), nil
}

// maxOccurrences is how many places one edit may replace.
const maxOccurrences = 100_000

// occurrences lists where old stands, from left to right without overlaps, and at most one more
// than maxOccurrences. Unless all are wanted, a second one counts that overlaps the first: "aa" is
// not unique in "aaa". Where one would tear a `\r\n` apart there are none: line ends have to be
// taken as equal then.
func occurrences(text, old string, all bool) []region {
	var at []region
	for from := 0; len(at) <= maxOccurrences; {
		i := strings.Index(text[from:], old)
		if i < 0 {
			break
		}
		r := region{from + i, from + i + len(old)}
		if r.tears(text) {
			return nil
		}
		at = append(at, r)
		from = r.to
		if len(at) == 1 && !all {
			from = r.from + 1
		}
	}
	return at
}

// tears tells whether a region begins or ends within a `\r\n`.
func (r region) tears(text string) bool {
	within := func(i int) bool { return i > 0 && i < len(text) && text[i] == '\n' && text[i-1] == '\r' }
	return within(r.from) || within(r.to)
}

func unixLines(s string) string { return strings.ReplaceAll(s, "\r\n", "\n") }

// mostlyCRLF tells whether lines of a text end in `\r\n`.
func mostlyCRLF(text string) bool {
	crlf := strings.Count(text, "\r\n")
	return crlf > 0 && 2*crlf >= strings.Count(text, "\n")
}

// rawPlaces maps regions of unixLines(text) back to the text itself. They are in order; all but
// an overlapping second one, which is never replaced, are exact.
func rawPlaces(text string, at []region) []region {
	raw, plain := 0, 0
	skip := func(to int) int {
		for plain < to {
			if strings.HasPrefix(text[raw:], "\r\n") {
				raw++
			}
			raw++
			plain++
		}
		return raw
	}
	found := make([]region, len(at))
	for i, r := range at {
		found[i].from = skip(r.from)
		found[i].to = skip(r.to)
	}
	return found
}

// hint says where the first line of what was sought does stand.
func (e edit) hint(text string) string {
	want := ""
	for line := range strings.SplitSeq(e.Old, "\n") {
		if want = strings.TrimSpace(line); want != "" {
			break
		}
	}
	if want == "" {
		return ""
	}
	n := 0
	for line := range strings.SplitSeq(text, "\n") {
		if n++; strings.TrimSpace(line) == want {
			return fmt.Sprintf(". Its first line stands, but for white space or what follows it, at line %d", n)
		}
	}
	return ""
}
