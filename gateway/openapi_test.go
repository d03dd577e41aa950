package gateway_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/troupe-dev/troupe/gateway"
)

// described is /openapi.json, as far as the tests look at it.
type described struct {
	OpenAPI string `json:"openapi"`
	Paths   map[string]map[string]struct {
		OperationID string `json:"operationId"`
		Summary     string `json:"summary"`
		Scope       string `json:"x-scope"`
		Parameters  []struct{ Name, In string }
		Body        map[string]any `json:"requestBody"`
		Responses   map[string]struct {
			Headers map[string]any
			Content map[string]struct {
				Schema json.RawMessage `json:"schema"`
			} `json:"content"`
		} `json:"responses"`
	} `json:"paths"`
	Components struct {
		Schemas map[string]json.RawMessage `json:"schemas"`
	} `json:"components"`
}

func describedBy(t *testing.T, s *server) (d described, text string) {
	t.Helper()
	res, text := s.do(t, "GET", "/openapi.json", "")
	if err := json.Unmarshal([]byte(text), &d); err != nil || res.StatusCode != 200 {
		t.Fatalf("%s %v", res.Status, err)
	}
	return d, text
}

// schema makes one that can be checked against: its references lead into $defs.
func (d *described) schema(t *testing.T, raw json.RawMessage) *jsonschema.Resolved {
	t.Helper()
	defs, err := json.Marshal(d.Components.Schemas)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(`{"allOf":[`+string(raw)+`],"$defs":`+string(defs)+`}`, "#/components/schemas/", "#/$defs/")
	var s jsonschema.Schema
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return r
}

func TestTheDescriptionHasEveryRouteAndNoOther(t *testing.T) {
	d, text := describedBy(t, serve(t, &backend{}, gateway.Options{}))
	if d.OpenAPI != "3.1.0" {
		t.Errorf("openapi %q", d.OpenAPI)
	}
	var have, want, ids []string
	for path, methods := range d.Paths {
		for method, op := range methods {
			have = append(have, strings.ToUpper(method)+" "+path+" "+op.Scope)
			ids = append(ids, op.OperationID)
			if op.Summary == "" || op.OperationID == "" || len(op.Responses) < 2 {
				t.Errorf("%s %s says too little: %+v", method, path, op)
			}
			if n := strings.Count(path, "{"); len(slices.DeleteFunc(slices.Clone(op.Parameters), func(p struct{ Name, In string }) bool { return p.In != "path" })) != n {
				t.Errorf("%s %s: parameters %v", method, path, op.Parameters)
			}
		}
	}
	for _, r := range gateway.Routes() {
		want = append(want, r.Method+" "+strings.ReplaceAll(r.Path, "...", "")+" "+string(r.Scope))
	}
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("described:\n%s\nserved:\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
	slices.Sort(ids)
	if twice := len(ids) - len(slices.Compact(ids)); twice > 0 {
		t.Errorf("%d operation ids stand twice", twice)
	}
	for _, ref := range regexp.MustCompile(`#/components/schemas/(\w+)`).FindAllStringSubmatch(text, -1) {
		if d.Components.Schemas[ref[1]] == nil {
			t.Errorf("%s leads nowhere", ref[0])
		}
	}
}

// TestAnswersAreAsDescribed checks those of the table of routes: what the code answers is what the description says.
func TestAnswersAreAsDescribed(t *testing.T) {
	d, _ := describedBy(t, serve(t, &backend{}, gateway.Options{}))
	checked := map[string]bool{}
	for _, c := range routeCases() {
		if c.status >= 300 || c.answer == "" {
			continue
		}
		method, address, _ := strings.Cut(c.request, " ")
		address, _, _ = strings.Cut(address, "?")
		for path, methods := range d.Paths {
			op, ok := methods[strings.ToLower(method)]
			if !ok || !regexp.MustCompile("^"+regexp.MustCompile(`\{[^}]*\}`).ReplaceAllString(path, "[^/]+")+"$").MatchString(address) {
				continue
			}
			if !strings.Contains(path, "{") != (path == address) {
				continue
			}
			var v any
			if err := json.Unmarshal([]byte(c.answer), &v); err != nil {
				t.Fatal(err)
			}
			content := op.Responses[strconv.Itoa(c.status)].Content["application/json"]
			if content.Schema == nil {
				t.Errorf("%s answers %d, which is not described", c.request, c.status)
				continue
			}
			if err := d.schema(t, content.Schema).Validate(v); err != nil {
				t.Errorf("%s answers %s, which is not as described: %v", c.request, c.answer, err)
			}
			checked[method+" "+path] = true
		}
	}
	if len(checked) < 25 {
		t.Errorf("only %d routes were checked", len(checked))
	}
}

// TestTheDescriptionSaysWhichWordsThereAre, so that a client that is made of it has them.
func TestTheDescriptionSaysWhichWordsThereAre(t *testing.T) {
	s := serve(t, &backend{}, gateway.Options{})
	_, text := s.do(t, "GET", "/openapi.json", "")
	for _, want := range []string{
		`"enum":["queue","steer","interrupt","reject"]`, `"enum":["approved","rejected","cancelled"]`, `"enum":["once","session","agent","always"]`, `"enum":["read","prompt","approve","admin"]`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
}

// TestTheDescriptionSaysWhichListsComeInPages: those whose pages lead to the next one by a header, and no others; they are not sent again to who has them.
func TestTheDescriptionSaysWhichListsComeInPages(t *testing.T) {
	d, _ := describedBy(t, serve(t, &backend{}, gateway.Options{}))
	var lists []string
	for path, methods := range d.Paths {
		for method, op := range methods {
			for _, r := range op.Responses {
				if r.Headers["Link"] != nil {
					lists = append(lists, method+" "+path)
				}
			}
			asked := slices.Contains(op.Parameters, struct{ Name, In string }{"If-None-Match", "header"})
			if _, same := op.Responses["304"]; asked != same || same != slices.Contains(lists, method+" "+path) {
				t.Errorf("%s %s: asked by a tag %v, 304 %v", method, path, asked, same)
			}
		}
	}
	slices.Sort(lists)
	if want := []string{"get /api/audit", "get /api/pipelines/runs", "get /api/sessions"}; !slices.Equal(lists, want) {
		t.Errorf("%q, want %q", lists, want)
	}
}
