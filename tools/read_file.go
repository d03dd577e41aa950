package tools

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/messages"
)

//go:embed read_file.md
var readFileDoc string

// ReadFile is the tool that shows a text file with numbered lines: at most 50 KiB and 2,000 lines
// (unless limit says otherwise) per result, 2,000 characters per line, of files up to 10 MiB. The
// file's hash goes into the result: a file that was read may be edited.
func ReadFile() Tool {
	return &fileTool[readFileArgs]{
		spec: &Spec{Name: "read_file", Description: readFileDoc, Effect: messages.Effect_PURE, Schema: json.RawMessage(`{
"type":"object","additionalProperties":false,"required":["path"],"properties":{
"path":{"type":"string","description":"File to read, relative to the working directory."},
"start_line":{"type":"integer","minimum":1,"description":"First line to show, from 1 (default 1)."},
"end_line":{"type":"integer","minimum":1,"description":"Last line to show."},
"limit":{"type":"integer","minimum":1,"description":"Most lines to show (default 2000)."},
` + workspaceArg + `}}`)},
		run: readFile,
	}
}

type readFileArgs struct {
	Path      string `json:"path"`
	StartLine int    `json:"start_line"`
	EndLine   int    `json:"end_line"`
	Limit     int    `json:"limit"`
}

func readFile(c *fileCall, a readFileArgs) (*Result, error) {
	first := max(a.StartLine, 1)
	if a.EndLine != 0 && a.EndLine < first {
		return nil, Errorf(CodeInvalidArguments, "end_line %d is before start_line %d", a.EndLine, first)
	}
	f, err := c.readText(a.Path)
	if err != nil {
		return nil, err
	}
	lines := textLines(c.clean(string(f.Data)))
	if first > max(len(lines), 1) {
		return nil, Errorf(CodeInvalidArguments, "start_line %d is beyond the end of %s (%d lines)", first, cleanText(a.Path), len(lines)).
			With("total_lines", len(lines))
	}
	last := len(lines)
	if a.EndLine != 0 {
		last = min(last, a.EndLine)
	}
	limit := a.Limit
	if limit == 0 {
		limit = 2000
	}
	content, shown, cut := numbered(lines, first, min(last, first+limit-1))
	rest := last - (first - 1 + shown)
	if rest > 0 {
		content += fmt.Sprintf("... [%d lines truncated] ...\n(read on with start_line=%d)\n", rest, first+shown)
	}
	if len(lines) == 0 {
		content = "(the file is empty)\n"
	}
	return &Result{
		Content:   content,
		Truncated: rest > 0 || cut,
		Meta:      map[string]any{"path": f.Path, "size": f.Size, "total_lines": len(lines), "start_line": first, "lines": shown},
		Files:     hashed(f.Path, f.SHA256),
	}, nil
}

// numbered writes lines first..last (from 1) until the result is full. At least one line is
// shown, so that a reader always gets on.
func numbered(lines []string, first, last int) (content string, shown int, cut bool) {
	const roomForFooter = 128
	var b []byte
	var digits [20]byte
	for n := first; n <= last; n++ {
		text, long := cutLine(lines[n-1], maxLineChars)
		before := len(b)
		number := strconv.AppendInt(digits[:0], int64(n), 10)
		b = append(b, "      "[min(len(number), 6):]...)
		b = append(append(append(b, number...), '\t'), text...)
		if long {
			b = fmt.Appendf(b, "... [%d characters truncated]", utf8.RuneCountInString(lines[n-1])-maxLineChars)
		}
		b = append(b, '\n')
		if len(b) > maxResultBytes-roomForFooter && shown > 0 {
			b = b[:before]
			break
		}
		shown++
		cut = cut || long
	}
	return string(b), shown, cut
}

// textLines splits a text into lines without their ends, `\n` or `\r\n`, and without a byte order
// mark. A last line without an end counts; nothing after the last end does not.
func textLines(text string) []string {
	text = strings.TrimPrefix(text, "\ufeff")
	if text == "" {
		return nil
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSuffix(line, "\r")
	}
	return lines
}
