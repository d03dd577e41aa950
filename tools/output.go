package tools

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

// Bounds of a command's output.
const (
	maxCommandOutput = 8 << 20  // bytes after which the command is killed
	maxShownOutput   = 30_000   // characters that the model sees, half of them from each end
	maxSpill         = 10 << 20 // bytes kept in home: what read_file still opens
	progressEvery    = 500 * time.Millisecond
)

// collector keeps what a command prints and reports progress now and then.
type collector struct {
	data  []byte
	exec  string
	tell  func(*messages.Progress)
	since time.Time
}

func (c *collector) Write(p []byte) (int, error) {
	c.data = append(c.data, p...)
	if now := time.Now(); c.tell != nil && now.Sub(c.since) >= progressEvery {
		c.since = now
		c.tell(&messages.Progress{ExecId: c.exec, Done: int64(len(c.data)), Unit: "bytes"})
	}
	return len(p), nil
}

// printable turns whatever a program prints into text that is safe to show and to store: valid
// UTF-8, and control characters, which could rewrite a terminal or its clipboard, as their
// pictures. Tabs and line ends stay.
func printable(data []byte) string {
	text := strings.ToValidUTF8(string(data), "\uFFFD")
	text = strings.ReplaceAll(text, "\r\n", "\n")
	if strings.IndexFunc(text, hidden) < 0 {
		return text
	}
	return strings.Map(func(r rune) rune {
		switch {
		case !hidden(r):
			return r
		case r < ' ':
			return '\u2400' + r
		case r == 0x7f:
			return '\u2421'
		}
		return '\uFFFD'
	}, text)
}

// Printable is printable for tools that live elsewhere.
func Printable(text string) string { return printable([]byte(text)) }

// Shorten keeps the head and the tail of a text of more than 30,000 characters.
func Shorten(text string) (short string, cut bool) { return shorten(text) }

func hidden(r rune) bool {
	return r < ' ' && r != '\t' && r != '\n' || r >= 0x7f && r <= 0x9f
}

// shorten keeps the head and the tail of a text of more than maxShownOutput characters, cut at
// line ends where one is near.
func shorten(text string) (short string, cut bool) {
	if len(text) <= maxShownOutput || utf8.RuneCountInString(text) <= maxShownOutput {
		return text, false
	}
	const half, near = maxShownOutput / 2, 1000
	head, from := 0, len(text)
	for range half {
		_, n := utf8.DecodeRuneInString(text[head:])
		head += n
		_, n = utf8.DecodeLastRuneInString(text[:from])
		from -= n
	}
	if i := strings.LastIndexByte(text[:head], '\n'); i >= head-near {
		head = i + 1
	}
	if i := strings.IndexByte(text[from:], '\n'); text[from-1] != '\n' && i >= 0 && i < near {
		from += i + 1
	}
	lines := max(1, strings.Count(text[head:from], "\n"))
	between := fmt.Sprintf("... [%d lines truncated] ...\n", lines)
	if text[head-1] != '\n' {
		between = "\n" + between
	}
	return text[:head] + between + text[from:], true
}

// spill keeps a whole output in the session's own workspace and says where, or why not.
func spill(home *workspace.Workspace, execID, text string) string {
	if home == nil || !plainID(execID) {
		return ""
	}
	if err := putSpill(home, execID, text); err != nil {
		return fmt.Sprintf("[the whole output could not be kept: %v]", err)
	}
	return fmt.Sprintf("[the whole output is in the workspace home: read_file or grep with path %q and workspace_id \"home\"]", spillName(execID))
}

// putSpill is spill for programs.
func putSpill(home *workspace.Workspace, execID, text string) error {
	if len(text) > maxSpill {
		text = strings.ToValidUTF8(text[:maxSpill], "")
	}
	_, err := home.WriteFile(spillName(execID), []byte(text), workspace.WriteOptions{Parents: true, Limit: maxSpill})
	return err
}

func spillName(execID string) string { return "spill/" + execID }

// plainID tells ids of ours, which are safe as a file name.
func plainID(id string) bool {
	if id == "" || len(id) > 100 {
		return false
	}
	for _, c := range []byte(id) {
		if c != '_' && c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return true
}
