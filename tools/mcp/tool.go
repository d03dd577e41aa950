package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// tool is one tool of a server.
type tool struct {
	server *Server
	remote string // its name there
	spec   *tools.Spec
}

// tool makes a tool of what a server lists. Its name here begins with the server's.
func (s *Server) tool(t *sdk.Tool, taken map[string]bool) (*tool, error) {
	schema, err := json.Marshal(t.InputSchema)
	if err != nil {
		return nil, fmt.Errorf("read its schema: %w", err)
	}
	if len(schema) > maxSchema {
		return nil, fmt.Errorf("its schema is larger than %d bytes", maxSchema)
	}
	about := strings.TrimSpace(clip(t.Description, maxAbout))
	if about == "" {
		about = "The tool " + t.Name + " of the MCP server " + s.name + ", which says nothing about it."
	}
	one := &tool{server: s, remote: t.Name, spec: &tools.Spec{
		Name: localName(s.name, t.Name, taken), Description: about, Schema: schema, Effect: effect(t.Annotations),
		Timeout: s.opts.Timeout, NoWorkspace: true, NoTemp: true, Server: s.name,
	}}
	_, err = tools.NewRegistry(one)
	return one, err
}

// effect is what a server's annotations say; without a word a call is made at most once.
func effect(a *sdk.ToolAnnotations) messages.Effect_Class {
	switch {
	case a == nil:
	case a.ReadOnlyHint:
		return messages.Effect_PURE
	case a.IdempotentHint:
		return messages.Effect_IDEMPOTENT
	}
	return messages.Effect_AT_MOST_ONCE
}

// maxName is the longest name of a tool.
const maxName = 64

// localName is SERVER_TOOL in snake_case. Two that come to the same get a number, in the order of their own names.
func localName(server, name string, taken map[string]bool) string {
	base := Prefix(server) + snake(name)
	base = strings.TrimRight(base[:min(len(base), maxName)], "_")
	for n := 1; ; n++ {
		try := base
		if n > 1 {
			suffix := fmt.Sprintf("_%d", n)
			try = strings.TrimRight(base[:min(len(base), maxName-len(suffix))], "_") + suffix
		}
		if !taken[try] {
			return try
		}
	}
}

// Prefix is what the names of a server's tools begin with here.
func Prefix(server string) string {
	base := snake(server)
	if base == "" || base[0] < 'a' || base[0] > 'z' {
		base = strings.TrimRight("mcp_"+base, "_")
	}
	return base + "_"
}

// snake writes a name with small letters, digits and single underscores: getSum is get_sum.
func snake(s string) string {
	var b strings.Builder
	before := '_'
	for _, r := range s {
		switch {
		case r >= 'A' && r <= 'Z':
			if before >= 'a' && before <= 'z' || before >= '0' && before <= '9' {
				b.WriteByte('_')
			}
			b.WriteRune(unicode.ToLower(r))
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			b.WriteRune(r)
		case before != '_':
			r = '_'
			b.WriteByte('_')
		default:
			r = '_'
		}
		before = r
	}
	return strings.Trim(strings.ReplaceAll(b.String(), "__", "_"), "_")
}

// Spec implements tools.Tool.
func (t *tool) Spec() *tools.Spec { return t.spec }

// Run implements tools.Tool.
func (t *tool) Run(tc *tools.Context, args json.RawMessage) (*tools.Result, error) {
	checked, _, err := tools.Check(t.spec, args)
	if err != nil {
		return nil, err
	}
	if checked == nil {
		checked = map[string]any{} // servers refuse null
	}
	ctx := tc.Signal
	if ctx == nil {
		ctx = context.Background()
	}
	session, err := t.server.connected(ctx)
	if err != nil {
		switch {
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			return nil, tools.Errorf(tools.CodeTimeout, "The MCP server %s was not connected in time; the call was not made.", t.server.name)
		case ctx.Err() != nil:
			return nil, tools.Errorf(tools.CodeCancelled, "The call of %s was cancelled before it was made.", t.spec.Name)
		}
		return nil, tools.Errorf(tools.CodeNetworkError, "The MCP server %s cannot be reached: %s", t.server.name, t.clean(tc, err.Error())).With("started", false)
	}
	params := &sdk.CallToolParams{Name: t.remote, Arguments: checked}
	token, stop := t.server.watchProgress(tc)
	defer stop()
	params.SetProgressToken(token)
	got, err := session.CallTool(ctx, params)
	if err != nil {
		return nil, t.refused(ctx, tc, err)
	}
	return t.result(tc, got)
}

// transportFailed is the code in which the SDK dresses every failure of a connection, and answers of status 500 and above: the request may have
// been heard.
const transportFailed = -32005

// refused says why there is no result. The server has the call by then: unless it only reads, whether it happened is not known
// where no answer came.
func (t *tool) refused(ctx context.Context, tc *tools.Context, err error) error {
	var rpc *jsonrpc.Error
	reads, text := t.spec.Effect == messages.Effect_PURE, t.clean(tc, err.Error())
	answered := errors.As(err, &rpc) && rpc.Code != transportFailed
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded) && reads:
		return tools.Errorf(tools.CodeTimeout, "The MCP server %s did not answer in time.", t.server.name)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return tools.ErrorUnknown("The MCP server %s did not answer in time", t.server.name)
	case ctx.Err() != nil && reads:
		return tools.Errorf(tools.CodeCancelled, "The call of %s was cancelled.", t.spec.Name)
	case ctx.Err() != nil:
		return tools.Errorf(tools.CodeCancelled, "The call of %s was cancelled; it may have had effects.", t.spec.Name)
	case answered && rpc.Code == jsonrpc.CodeInvalidParams:
		return tools.Errorf(tools.CodeInvalidArguments, "%s", text)
	case answered && rpc.Code == jsonrpc.CodeMethodNotFound:
		return tools.Errorf(tools.CodeToolNotFound, "%s", text)
	case answered:
		return tools.Errorf(tools.CodeValidationFailed, "%s", text)
	case reads:
		return tools.Errorf(tools.CodeInterrupted, "The MCP server %s ended during the call: %s", t.server.name, text)
	}
	return tools.ErrorUnknown("The MCP server %s ended during the call: %s", t.server.name, text)
}

// result is what the model is shown.
func (t *tool) result(tc *tools.Context, got *sdk.CallToolResult) (*tools.Result, error) {
	var parts []string
	for _, c := range got.Content {
		parts = append(parts, shown(c))
	}
	text := strings.Join(parts, "\n")
	if text == "" && got.StructuredContent != nil {
		b, err := json.Marshal(got.StructuredContent)
		if err != nil {
			return nil, tools.Errorf(tools.CodeEncodingError, "The MCP server %s answered with what is no JSON: %v", t.server.name, err)
		}
		text = string(b)
	}
	short, cut := tools.Shorten(t.clean(tc, tools.Printable(text)))
	if got.IsError {
		return nil, tools.Errorf(tools.CodeValidationFailed, "%s", short)
	}
	return &tools.Result{Content: short, Truncated: cut, Meta: map[string]any{"mcp_server": t.server.name, "mcp_tool": t.remote}}, nil
}

// shown is one piece of content as text. Pictures and sounds are named: models are given text.
func shown(c sdk.Content) string {
	switch c := c.(type) {
	case *sdk.TextContent:
		return c.Text
	case *sdk.ImageContent:
		return fmt.Sprintf("[image, %s, %d bytes]", c.MIMEType, len(c.Data))
	case *sdk.AudioContent:
		return fmt.Sprintf("[audio, %s, %d bytes]", c.MIMEType, len(c.Data))
	case *sdk.ResourceLink:
		return fmt.Sprintf("[resource %s: %s]", c.Name, c.URI)
	case *sdk.EmbeddedResource:
		if c.Resource == nil {
			return "[resource]"
		}
		if c.Resource.Text != "" {
			return c.Resource.Text
		}
		return fmt.Sprintf("[resource %s, %s, %d bytes]", c.Resource.URI, c.Resource.MIMEType, len(c.Resource.Blob))
	}
	return fmt.Sprintf("[%T]", c)
}

func (t *tool) clean(tc *tools.Context, text string) string {
	if tc.Redact == nil {
		return text
	}
	return tc.Redact(text)
}

func clip(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
