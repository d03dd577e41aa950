package tools

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

//go:embed list_files.md
var listFilesDoc string

// ListFiles is the tool that lists a directory, or the whole tree below it.
func ListFiles() Tool {
	return &fileTool[listFilesArgs]{
		spec: &Spec{Name: "list_files", Description: listFilesDoc, Effect: messages.Effect_PURE, Schema: json.RawMessage(`{
"type":"object","additionalProperties":false,"properties":{
"path":{"type":"string","description":"Directory to list (default: the working directory)."},
"recursive":{"type":"boolean","description":"Also list what is in the directories below (default false)."},
"include_hidden":{"type":"boolean","description":"Also list names that begin with a dot (default false)."},
"pattern":{"type":"string","description":"Only names that match this glob, as *.go."},
"max_results":{"type":"integer","minimum":1,"maximum":10000,"description":"Most entries to list (default 1000)."},
` + workspaceArg + `}}`)},
		run: listFiles,
	}
}

type listFilesArgs struct {
	Path          string `json:"path"`
	Recursive     bool   `json:"recursive"`
	IncludeHidden bool   `json:"include_hidden"`
	Pattern       string `json:"pattern"`
	MaxResults    int    `json:"max_results"`
}

func listFiles(c *fileCall, a listFilesArgs) (*Result, error) {
	var only *pattern
	if a.Pattern != "" {
		var err error
		if only, err = compilePattern(a.Pattern, a.IncludeHidden); err != nil {
			return nil, err
		}
	}
	out := newListing(a.MaxResults, 1000)
	cut, err := c.ws.Walk(c.ctx, c.at(orHere(a.Path)), func(e *workspace.Entry) error {
		if !a.IncludeHidden && strings.HasPrefix(e.Name, ".") {
			return workspace.SkipDir
		}
		if only == nil || only.match(e.Name) || only.match(belowStart(e)) {
			if !out.add(entryLine(c, e)) {
				return workspace.Stop
			}
		}
		if !a.Recursive {
			return workspace.SkipDir
		}
		return nil
	})
	if err != nil {
		return nil, c.fail(orHere(a.Path), err)
	}
	return out.result("(no files)", cut, "narrow it with path or pattern"), nil
}

func orHere(name string) string {
	if name == "" {
		return "."
	}
	return name
}

// belowStart is an entry's path from where the walk began.
func belowStart(e *workspace.Entry) string {
	parts := strings.Split(e.Path, "/")
	return strings.Join(parts[max(len(parts)-e.Depth, 0):], "/")
}

// entryLine marks what is no regular file.
func entryLine(c *fileCall, e *workspace.Entry) string {
	name := c.show(e.Path)
	switch e.Mode.Type() {
	case 0:
		return name
	case fs.ModeDir:
		return name + "/"
	case fs.ModeSymlink:
		return name + " (link)"
	default:
		return name + " (special file)"
	}
}

// listing collects the lines of a result up to its limits.
type listing struct {
	lines []string
	max   int
	bytes int
	full  bool
}

func newListing(maxResults, standard int) *listing {
	if maxResults <= 0 {
		maxResults = standard
	}
	return &listing{max: maxResults}
}

// add takes one line; false: there is no room for it.
func (l *listing) add(line string) bool {
	if len(l.lines) >= l.max || l.bytes+len(line)+1 > maxResultBytes {
		l.full = true
		return false
	}
	l.lines = append(l.lines, line)
	l.bytes += len(line) + 1
	return true
}

func (l *listing) result(empty string, cut bool, advice string) *Result {
	content := empty + "\n"
	if len(l.lines) > 0 {
		content = strings.Join(l.lines, "\n") + "\n"
	}
	if l.full || cut {
		content += fmt.Sprintf("... [truncated after %d results; %s] ...\n", len(l.lines), advice)
	}
	return &Result{Content: content, Truncated: l.full || cut, Meta: map[string]any{"results": len(l.lines)}}
}
