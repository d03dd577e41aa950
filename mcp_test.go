package troupe_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

// TestToolsOfMCPServersBelongToTheAgentsThatNameThem looks at what models are offered: by agent, by trust, and after the switch of one
// worker. A server is connected once, and one that is missing keeps nobody from working.
func TestToolsOfMCPServersBelongToTheAgentsThatNameThem(t *testing.T) {
	connections, found := 0, 0
	server := sdk.NewServer(&sdk.Implementation{Name: "notes"}, &sdk.ServerOptions{InitializedHandler: func(context.Context, *sdk.InitializedRequest) { connections++ }})
	sdk.AddTool(server, &sdk.Tool{Name: "find", Description: "Finds a note.", Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true}}, func(_ context.Context, _ *sdk.CallToolRequest, in struct{ Word string }) (*sdk.CallToolResult, any, error) {
		found++
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "a note about " + in.Word}}}, nil, nil
	})
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil)
	srv := httptest.NewServer(handler)
	t.Cleanup(srv.Close)
	offered := map[string][]string{}
	rt, ctx := runtimeOf(t, troupe.Options{
		Model: say(func(req *model.Request) (string, []*messages.ToolCall) {
			var names []string
			for _, tool := range req.Tools {
				names = append(names, tool.Name)
			}
			offered[req.Agent] = names
			last := req.Prompt.Messages[len(req.Prompt.Messages)-1]
			if last.Role == messages.User && slices.Contains(names, "notes_find") {
				return "", []*messages.ToolCall{{Id: "1", Name: "notes_find", Arguments: `{"Word":"tea"}`}}
			}
			return last.Text, nil
		}),
		MCP:    map[string]troupe.MCPServer{"notes": {URL: srv.URL}, "unused": {Command: []string{"/does/not/exist"}}},
		Agents: []troupe.Agent{{Name: "with", MCP: []string{"notes", "absent"}}, {Name: "without"}},
	})
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	if all := rt.MCPServers(); len(all) != 2 || all[0].Name != "absent" || all[0].Err == nil || all[1].Err != nil || !slices.Equal(all[1].Tools, []string{"notes_find"}) {
		t.Errorf("%+v", all)
	}
	run := func(agent string, trust troupe.Trust, rules ...string) (*troupe.Session, string) {
		s, err := rt.Session(ctx, troupe.SessionOptions{Dir: t.TempDir(), Trust: trust, Agent: agent, Rules: rules})
		if err != nil {
			t.Fatal(err)
		}
		res, err := s.Run(ctx, "look")
		if err != nil {
			t.Fatal(err)
		}
		return s, res.Text
	}
	with, text := run("with", troupe.Full)
	if text != "a note about tea" || !slices.Contains(offered["with"], "read_file") {
		t.Errorf("%q, offered %v", text, offered["with"])
	}
	if _, text := run("without", troupe.Full); text != "look" || slices.Contains(offered["without"], "notes_find") {
		t.Errorf("%q, offered %v", text, offered["without"])
	}
	if _, text := run("with", troupe.Restricted); strings.Contains(text, "a note") || !slices.Contains(offered["with"], "notes_find") {
		t.Errorf("in a restricted folder, unasked: %q, offered %v", text, offered["with"])
	}
	before := found
	if _, text := run("with", troupe.Restricted, "@read"); strings.Contains(text, "a note") || found != before {
		t.Errorf("a server's word that it only reads made it run under @read: %q", text)
	}
	if _, text := run("with", troupe.Restricted, "notes_find"); text != "a note about tea" {
		t.Errorf("by its own rule: %q", text)
	}
	for _, on := range []bool{false, true} {
		if err := with.SetMCP(ctx, on); err != nil {
			t.Fatal(err)
		}
		if _, err := with.Run(ctx, "look"); err != nil {
			t.Fatal(err)
		}
		if slices.Contains(offered["with"], "notes_find") != on {
			t.Errorf("switched to %v: %v", on, offered["with"])
		}
	}
	if connections > 1 {
		t.Errorf("it was connected %d times", connections)
	}
}

// TestANameThatIsTakenLeavesOneToolOut: what a server calls its tools keeps nobody from starting.
func TestANameThatIsTakenLeavesOneToolOut(t *testing.T) {
	server := sdk.NewServer(&sdk.Implementation{Name: "git"}, nil)
	for _, name := range []string{"status", "bisect"} {
		sdk.AddTool(server, &sdk.Tool{Name: name}, func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, any, error) {
			return &sdk.CallToolResult{}, nil, nil
		})
	}
	srv := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil))
	t.Cleanup(srv.Close)
	rt, _ := runtimeOf(t, troupe.Options{
		Model: echo(), MCP: map[string]troupe.MCPServer{"git": {URL: srv.URL}}, Agents: []troupe.Agent{{Name: "default", MCP: []string{"git"}}},
	})
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	all := rt.MCPServers()
	if len(all) != 1 || !slices.Equal(all[0].Tools, []string{"git_bisect"}) || all[0].Err == nil || !strings.Contains(all[0].Err.Error(), "git_status") {
		t.Errorf("%+v", all)
	}
}
