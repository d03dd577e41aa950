package tools

import (
	_ "embed"
	"encoding/json"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

//go:embed glob.md
var globDoc string

// Glob is the tool that finds files by a pattern of their path, sorted.
func Glob() Tool {
	return &fileTool[globArgs]{
		spec: &Spec{Name: "glob", Description: globDoc, Effect: messages.Effect_PURE, Schema: json.RawMessage(`{
"type":"object","additionalProperties":false,"required":["pattern"],"properties":{
"pattern":{"type":"string","description":"Pattern of the path below the start: *, ?, [a-z], {a,b}, ** for any directories."},
"path":{"type":"string","description":"Directory to start from (default: the working directory)."},
"max_results":{"type":"integer","minimum":1,"maximum":10000,"description":"Most files to list (default 200)."},
` + workspaceArg + `}}`)},
		run: globFiles,
	}
}

type globArgs struct {
	Pattern    string `json:"pattern"`
	Path       string `json:"path"`
	MaxResults int    `json:"max_results"`
}

func globFiles(c *fileCall, a globArgs) (*Result, error) {
	p, err := compilePattern(a.Pattern, false)
	if err != nil {
		return nil, err
	}
	out := newListing(a.MaxResults, 200)
	cut, err := c.ws.Walk(c.ctx, c.at(orHere(a.Path)), func(e *workspace.Entry) error {
		whole, below := p.against(belowStart(e))
		if whole && !e.IsDir() && !out.add(entryLine(c, e)) {
			return workspace.Stop
		}
		if !below {
			return workspace.SkipDir
		}
		return nil
	})
	if err != nil {
		return nil, c.fail(orHere(a.Path), err)
	}
	return out.result("(no files match)", cut, "narrow the pattern or the path"), nil
}
