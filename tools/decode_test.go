package tools

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

var sample = &Spec{Name: "sample", Schema: json.RawMessage(`{
	"type": "object", "additionalProperties": false, "required": ["path"],
	"properties": {
		"path": {"type": "string", "minLength": 1, "description": "where"},
		"limit": {"type": "integer", "minimum": 1, "maximum": 2000},
		"ratio": {"type": "number", "maximum": 1.5},
		"mode": {"type": "string", "enum": ["a", "b"]},
		"deep": {"type": "boolean"},
		"value": {"type": ["string", "null"]},
		"free": {"type": "object"},
		"edits": {"type": "array", "minItems": 1, "items": {
			"type": "object", "additionalProperties": false, "required": ["old"],
			"properties": {"old": {"type": "string"}, "new": {"type": "string"}}}}
	}}`)}

type sampleArgs struct {
	Path  string          `json:"path"`
	Limit int             `json:"limit"`
	Ratio float64         `json:"ratio"`
	Mode  string          `json:"mode"`
	Deep  *bool           `json:"deep"`
	Value json.RawMessage `json:"value"`
	Free  map[string]any  `json:"free"`
	Edits []struct {
		Old string `json:"old"`
		New string `json:"new"`
	} `json:"edits"`
}

func TestRefusedArgumentsSayHowToMendThem(t *testing.T) {
	for _, c := range []struct{ name, args, text string }{
		{"unknown with a near name", `{"pat":"x"}`, `did you mean "path"?`},
		{"unknown with a far name", `{"path":"x","zzzzzz":1}`, `path (required)`},
		{"wrong case", `{"Path":"x"}`, `case-sensitive, did you mean "path"?`},
		{"wrong case beside the right one", `{"path":"x","PATH":"y"}`, `case-sensitive`},
		{"Kelvin sign folds to k in encoding/json", `{"path":"x","\u212A":"y"}`, `unknown argument`},
		{"twice", `{"path":"x","path":"y"}`, `argument "path" is given twice`},
		{"twice by escape", `{"path":"x","p\u0061th":"y"}`, `given twice`},
		{"twice below", `{"path":"x","edits":[{"old":"a","old":"b"}]}`, `given twice`},
		{"twice in a free object", `{"path":"x","free":{"a":{"b":1,"b":2}}}`, `"free.a.b" is given twice`},
		{"missing", `{}`, `missing required argument "path" (a string: where)`},
		{"null for a required one", `{"path":null}`, `must be a string, not null`},
		{"missing below", `{"path":"x","edits":[{"new":"a"}]}`, `"edits[0].old"`},
		{"unknown below", `{"path":"x","edits":[{"old":"a","nwe":"a"}]}`, `did you mean "new"?`},
		{"number as string", `{"path":"x","limit":"10"}`, `must be an integer, not the string "10"`},
		{"fraction", `{"path":"x","limit":1.5}`, `must be an integer`},
		{"below", `{"path":"x","limit":0}`, `at least 1, not 0`},
		{"above", `{"path":"x","limit":2001}`, `at most 2000`},
		{"endless exponent", `{"path":"x","limit":1e999999999}`, `must be an integer`},
		{"endless number", `{"path":"x","ratio":1e999999999}`, `must be a number`},
		{"enum", `{"path":"x","mode":"c"}`, `one of "a", "b"`},
		{"empty string", `{"path":""}`, `must not be empty`},
		{"too few", `{"path":"x","edits":[]}`, `at least 1 items`},
		{"array", `["path"]`, `must be a JSON object, not an array`},
		{"string", `"{}"`, `must be a JSON object, not the string`},
		{"two objects", `{"path":"x"}{"path":"y"}`, `exactly one JSON object`},
		{"trailing words", `{"path":"x"} thanks`, `exactly one JSON object`},
		{"cut off", `{"path":"x`, `not valid JSON`},
		{"single quotes", `{'path':'x'}`, `not valid JSON`},
		{"trailing comma", `{"path":"x",}`, `not valid JSON`},
		{"not UTF-8", "{\"path\":\"\xff\"}", `not valid UTF-8`},
		{"deep", `{"path":"x","free":` + strings.Repeat(`{"a":`, 100) + `1` + strings.Repeat(`}`, 100) + `}`, `deeper than 64`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var a sampleArgs
			err := Decode(sample, json.RawMessage(c.args), &a)
			var refused *Error
			if !errors.As(err, &refused) || refused.Code != CodeInvalidArguments {
				t.Fatalf("got %v, want invalid_arguments", err)
			}
			if !strings.Contains(refused.Message, c.text) {
				t.Fatalf("the text %q does not say %q", refused.Message, c.text)
			}
		})
	}
}

func TestWhatTheSchemaAllowsIsDecodedAsWritten(t *testing.T) {
	var a sampleArgs
	args := `{"path":"é\u0000<&>","limit":1e1,"ratio":-0.5,"mode":"b","deep":null,"value":null,
		"free":{"Path":1,"path":[null]},"edits":[{"old":"a"},{"old":"b","new":"c"}]}`
	if err := Decode(sample, json.RawMessage(args), &a); err != nil {
		t.Fatal(err)
	}
	if a.Path != "é\x00<&>" || a.Limit != 10 || a.Ratio != -0.5 || a.Mode != "b" || len(a.Edits) != 2 {
		t.Errorf("decoded %+v", a)
	}
	if a.Deep != nil {
		t.Error("a null for an optional argument that takes none is not as if left out")
	}
	if string(a.Value) != "null" {
		t.Errorf("a null that the schema allows came as %q", a.Value)
	}
	if len(a.Free) != 2 {
		t.Errorf("the free object came as %v", a.Free)
	}
}

func TestNothingAndNullAreTheEmptyObject(t *testing.T) {
	none := &Spec{Name: "none", Schema: json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`)}
	for _, args := range []string{"", " ", "null", "{}", "\n{ }\n"} {
		if err := Decode(none, json.RawMessage(args), &struct{}{}); err != nil {
			t.Errorf("%q: %v", args, err)
		}
		c, _, err := Canonical(json.RawMessage(args))
		if err != nil || string(c) != "{}" {
			t.Errorf("canonical form of %q is %s, %v", args, c, err)
		}
	}
	if err := Decode(none, nil, &struct{}{}); err != nil {
		t.Error(err)
	}
}

func TestEqualArgumentsHaveOneCanonicalForm(t *testing.T) {
	a, ha, err := Canonical(json.RawMessage(`{"b": [1, {"y":null,"x":"\u0041<"}], "a": 1e1}`))
	if err != nil {
		t.Fatal(err)
	}
	b, hb, err := Canonical(json.RawMessage(`{"a":1e1,"b":[1,{"x":"A\u003c","y":null}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if string(a) != `{"a":1e1,"b":[1,{"x":"A<","y":null}]}` || string(a) != string(b) || ha != hb {
		t.Errorf("%s and %s", a, b)
	}
	_, other, err := Canonical(json.RawMessage(`{"a":1e1,"b":[1,{"x":"A","y":null}]}`))
	if err != nil || other == ha {
		t.Error("different arguments have one hash")
	}
}

func TestABrokenSchemaIsADefectAndNotTheModelsFault(t *testing.T) {
	var refused *Error
	for _, s := range []string{``, `{`, `{"type":"string"}`, `{"type":7}`} {
		err := Decode(&Spec{Name: "x", Schema: json.RawMessage(s)}, nil, &struct{}{})
		if err == nil || errors.As(err, &refused) {
			t.Errorf("schema %q: %v", s, err)
		}
	}
}

func TestForeignSchemasDoNotBreakTheDecoder(t *testing.T) {
	spec := &Spec{Name: "x", Schema: json.RawMessage(`{"type":"object","properties":{"a":null,"b":true,
		"c":{"anyOf":[{"type":"string"}]},"d":{"items":true}},"additionalProperties":{"type":"integer"}}`)}
	var m map[string]any
	if err := Decode(spec, json.RawMessage(`{"a":1,"b":"x","c":[],"d":[1],"e":5}`), &m); err != nil {
		t.Fatal(err)
	}
	if err := Decode(spec, json.RawMessage(`{"e":"no"}`), &m); err == nil {
		t.Error("a value that additionalProperties excludes was taken")
	}
}

func TestWireTextsAreTheExactOnes(t *testing.T) {
	for _, c := range []struct{ code, message, want string }{
		{CodeFileNotFound, "a.txt", "File not found: a.txt"},
		{CodeFileNotFound, "File not found: a.txt", "File not found: a.txt"},
		{CodePermissionDenied, "x", "Access denied: x"},
		{CodeInvalidPath, "x", "Invalid path: x"},
		{CodeFileTooLarge, "x", "File too large: x"},
		{CodeUserRejected, "whatever", "Operation rejected by user"},
		{CodeToolNotFound, "Tool 'x' not found", "Tool execution failed: Tool 'x' not found"},
		{CodeTimeout, "approval timed out after 3 s", "Tool execution failed: approval timed out after 3 s"},
		{CodeInternalError, "boom", "Unexpected error: boom"},
		{"something_new", "x", "Tool execution failed: x"},
	} {
		if got := WireText(c.code, c.message); got != c.want {
			t.Errorf("%s: %q, want %q", c.code, got, c.want)
		}
	}
}

func FuzzDecodeNeverTakesWhatIsNotOneObject(f *testing.F) {
	for _, s := range []string{`{"path":"x"}`, `{"path":"x","limit":1}`, `[`, `{"a":{"a":1,"a":1}}`, "null", `{"path":"\ud800"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, args []byte) {
		c, sum, err := Canonical(args)
		if err != nil {
			return
		}
		if !json.Valid(c) || !utf8.Valid(c) {
			t.Fatalf("%q became %q", args, c)
		}
		again, sumAgain, err := Canonical(c)
		if err != nil || string(again) != string(c) || sum != sumAgain {
			t.Fatalf("the canonical form of %q is not its own: %q, %v", c, again, err)
		}
		var a, b any
		if json.Unmarshal(args, &a) == nil {
			if err := json.Unmarshal(c, &b); err != nil || !reflect.DeepEqual(a, b) && a != nil {
				t.Fatalf("%q and %q differ", args, c)
			}
		} else if len(strings.TrimSpace(string(args))) > 0 {
			t.Fatalf("%q is no JSON and was taken", args)
		}
	})
}
