package troupe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/tools/mcp"
)

// MCPServer is a server of the Model Context Protocol: a command that is spoken to over its standard input and output, or
// the address of one that speaks streamable HTTP. Commands run as this process does, outside of the sandbox.
type MCPServer struct {
	Command []string
	Env     []string // NAME=value, besides PATH, HOME and the like; nothing else of the environment is passed on
	URL     string
	Headers map[string]string // of each request to URL
	Timeout time.Duration     // of one call; 0: a minute
}

// MCPStatus says how it stands with a server.
type MCPStatus struct {
	Name  string
	Tools []string // their names here
	Err   error    // why it has none, or not all
}

// connected is a server of this runtime; server is nil when it could not be connected.
type connected struct {
	name   string
	server *mcp.Server
	err    error
	names  []string // of its tools that are offered
}

// connectMCP connects the servers that agents name, all at once.
func (rt *Runtime) connectMCP(ctx context.Context, o *Options) {
	if o.Still {
		return
	}
	wanted := make(map[string]bool)
	for _, a := range o.Agents {
		for _, name := range a.MCP {
			wanted[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		rt.mcp = append(rt.mcp, &connected{name: name, err: errors.New("there is no MCP server of this name")})
	}
	redact := func(s string) string { return s }
	if o.Redact != nil {
		redact = o.Redact.String
	}
	var all sync.WaitGroup
	for _, c := range rt.mcp {
		s, ok := o.MCP[c.name]
		if !ok {
			continue
		}
		all.Go(func() {
			c.server, c.err = mcp.Connect(ctx, c.name, mcp.Options{
				Command: s.Command, Env: s.Env, URL: s.URL, Headers: s.Headers, Timeout: s.Timeout, Logger: o.Logger, Redact: redact,
			})
		})
	}
	all.Wait()
	for _, c := range rt.mcp {
		if c.err != nil {
			o.Logger.Error("an MCP server is not there", "server", c.name, "err", c.err)
		}
	}
}

// MCPServers says how it stands with the servers that agents name, in the order of their names.
func (rt *Runtime) MCPServers() []MCPStatus {
	var out []MCPStatus
	for _, c := range rt.mcp {
		out = append(out, MCPStatus{Name: c.name, Tools: slices.Clone(c.names), Err: c.err})
	}
	return out
}

// offers are the server's tools whose names are free. What a server calls its tools keeps nobody from starting.
func (c *connected) offers(log *slog.Logger, taken map[string]string) (out []Tool) {
	if c.server == nil {
		return nil
	}
	for _, t := range c.server.Tools() {
		name := t.Spec().Name
		if by := taken[name]; by != "" {
			c.err = errors.Join(c.err, fmt.Errorf("MCP server %s: its tool %s is left out: the name is that of %s", c.name, name, by))
			log.Error("a tool of an MCP server is left out: its name is taken", "server", c.name, "tool", name, "by", by)
			continue
		}
		taken[name] = "MCP server " + c.name
		c.names, out = append(c.names, name), append(out, t)
	}
	return out
}

func (rt *Runtime) closeMCP() {
	var all sync.WaitGroup
	for _, c := range rt.mcp {
		if c.server != nil {
			all.Go(c.server.Close)
		}
	}
	all.Wait()
}
