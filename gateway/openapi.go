package gateway

import (
	"net/http"
	"reflect"
	"regexp"
	"strings"

	"github.com/troupe-dev/troupe/messages"
)

// openAPI answers with the description of the API (OpenAPI 3.1), made of the table that the routes are served from.
func (a *api) openAPI(_ http.ResponseWriter, r *http.Request) (answer, error) {
	if _, err := query(r); err != nil {
		return answer{}, err
	}
	return ok(describe(a.table(), a.opts.Version))
}

// described is a piece of a description.
type described map[string]any

// describe makes the description of routes.
func describe(rows []row, version string) described {
	s := &schemas{made: described{}, names: make(map[reflect.Type]string)}
	problem := described{
		"description": "What was refused, and why (RFC 9457)",
		"content":     described{messages.ProblemType: described{"schema": s.of(messages.ProblemJSON{})}},
	}
	paths := described{}
	for _, r := range rows {
		method, path, _ := strings.Cut(r.pattern, " ")
		path = strings.ReplaceAll(path, "...}", "}")
		if paths[path] == nil {
			paths[path] = described{}
		}
		paths[path].(described)[strings.ToLower(method)] = operation(r, path, s) //nolint:forcetypeassert // it was made above
	}
	if version == "" {
		version = "0"
	}
	return described{
		"openapi": "3.1.0",
		"info": described{
			"title": "troupe", "version": version,
			"description": "Sessions of agents, their inputs, events and approvals. Each operation says its scope in x-scope; a server without tokens needs none.",
		},
		"paths": paths,
		"components": described{
			"schemas":         s.made,
			"responses":       described{"problem": problem},
			"securitySchemes": described{"token": described{"type": "http", "scheme": "bearer"}},
		},
	}
}

// operation describes one route.
func operation(r row, path string, s *schemas) described {
	op := described{
		"operationId": operationID(r.pattern), "summary": r.summary, "parameters": parameters(r, path),
		"responses": described{statusText(r): succeeded(r, s), "default": described{"$ref": "#/components/responses/problem"}},
	}
	if r.waits != nil {
		op["responses"].(described)[itoa(http.StatusOK)] = described{ //nolint:forcetypeassert // it was made above
			"description": "What it came to, for a client that prefers to wait and may read",
			"content":     described{"application/json": described{"schema": s.of(r.waits)}},
		}
	}
	if r.paged() {
		op["responses"].(described)[itoa(http.StatusNotModified)] = described{"description": "Nothing in it has changed: its ETag is among those of If-None-Match"} //nolint:forcetypeassert // it was made above
	}
	if r.scope != ScopeNone {
		op["x-scope"], op["security"] = string(r.scope), []described{{"token": []string{}}}
	} else {
		op["security"] = []described{}
	}
	switch {
	case r.in != nil:
		op["requestBody"] = described{"content": described{"application/json": described{"schema": s.of(r.in)}}}
	case r.takes != "":
		op["requestBody"] = described{"required": true, "content": described{r.takes: described{"schema": described{"type": "string", "format": "binary"}}}}
	}
	return op
}

func parameters(r row, path string) []described {
	out := []described{}
	for _, name := range regexp.MustCompile(`\{([^}]*)\}`).FindAllStringSubmatch(path, -1) {
		out = append(out, described{"name": name[1], "in": "path", "required": true, "schema": described{"type": "string"}})
	}
	for _, name := range r.query {
		out = append(out, described{"name": name, "in": "query", "schema": described{"type": "string"}})
	}
	if r.paged() {
		out = append(out, described{
			"name": "If-None-Match", "in": "header", "schema": described{"type": "string"},
			"description": "The ETag of a list that the client has: it is answered again only when something in it has changed",
		})
	}
	if r.waits != nil {
		out = append(out, described{
			"name": "Prefer", "in": "header", "schema": described{"type": "string"},
			"description": "wait=N: answer with the result if it is there within N seconds (RFC 7240), at most 600",
		})
	}
	return out
}

// operationID makes one word of a pattern, as POST /api/sessions/{id}/inputs is postSessionsIdInputs.
func operationID(pattern string) string {
	method, path, _ := strings.Cut(pattern, " ")
	id := strings.ToLower(method)
	for _, part := range strings.FieldsFunc(strings.TrimPrefix(path, "/api"), func(c rune) bool { return strings.ContainsRune("/{}._", c) }) {
		id += strings.ToUpper(part[:1]) + part[1:]
	}
	return id
}

func statusText(r row) string {
	switch {
	case r.status != 0:
		return itoa(r.status)
	case r.kind == "websocket":
		return itoa(http.StatusSwitchingProtocols)
	case r.out == nil && r.kind == "":
		return itoa(http.StatusNoContent)
	}
	return itoa(http.StatusOK)
}

func succeeded(r row, s *schemas) described {
	switch {
	case r.kind == "websocket":
		return described{"description": "A WebSocket"}
	case r.kind == "text/plain" || r.kind == "text/event-stream":
		return described{"description": "The text", "content": described{r.kind: described{"schema": described{"type": "string"}}}}
	case r.kind != "":
		return described{"description": "The bytes", "content": described{r.kind: described{"schema": described{"type": "string", "format": "binary"}}}}
	case r.out == nil:
		return described{"description": "Done"}
	}
	out := described{"description": "The answer", "content": described{"application/json": described{"schema": s.of(r.out)}}}
	if r.paged() {
		out["headers"] = described{
			"Link": described{"description": "The next page, while there is one: <address>; rel=\"next\"", "schema": described{"type": "string"}},
			"ETag": described{"description": "Of what is listed, for If-None-Match", "schema": described{"type": "string"}},
		}
	}
	return out
}
