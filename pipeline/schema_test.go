package pipeline_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/pipeline"
)

func TestAnAnswerFitsAsJSONAloneOrNotAtAll(t *testing.T) {
	sc, err := pipeline.ReadSchema([]byte(`{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}`))
	if err != nil {
		t.Fatal(err)
	}
	for answer, want := range map[string]string{
		`{"n": 1}`:                              `{"n": 1}`,
		" \n{\"n\": 12345678901234567890123}\n": `{"n": 12345678901234567890123}`,
		"```json\n{\"n\": 1.0}\n```":            `{"n": 1.0}`,
	} {
		if raw, why := sc.Fit(answer); why != "" || string(raw) != want {
			t.Errorf("%q: %s, %q", answer, raw, why)
		}
	}
	for answer, want := range map[string]string{
		"":                       "it is no JSON: it is empty",
		`{"n": 1} as you asked`:  "it is no JSON: something follows the value, at byte 8",
		`{"n": 1}{"n": 2}`:       "it is no JSON: something follows",
		`Here: {"n": 1}`:         "it is no JSON: invalid character",
		`{"n": `:                 "it is no JSON: unexpected EOF",
		`{"n": "1"}`:             "n",
		`{}`:                     "n",
		"null":                   "",
		"```json\n{\"n\": 1}\n":  "it is no JSON: ",
		"```\n{\"n\": 1}\n``` x": "it is no JSON: ",
	} {
		if raw, why := sc.Fit(answer); why == "" || raw != nil || !strings.Contains(why, want) {
			t.Errorf("%q fits: %s, %q", answer, raw, why)
		}
	}
}

// What is nested ten thousand deep no reader of JSON takes, and a run whose outputs hold it could not be shown.
func TestWhatIsNestedWithoutEndIsNoValue(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	schema, err := pipeline.ReadSchema([]byte(`{"type": "array"}`))
	if err != nil {
		t.Fatal(err)
	}
	p, err := pipeline.Parse("p.yaml", "version: 1\nname: p\ninputs: {l: {type: list}}\nsteps: [{id: a, agent: default, prompt: x}]\n", pipeline.Options{Agents: []string{"default"}})
	if err != nil {
		t.Fatal(err)
	}
	for n, fits := range map[int]bool{500: true, 501: false, 9000: false} {
		if _, why := schema.Fit(deep(n)); (why == "") != fits {
			t.Errorf("an answer %d deep: %s", n, why)
		}
		given, err := p.Root.Set([]string{"l=" + deep(n)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Root.Fill(given, nil); (err == nil) != fits {
			t.Errorf("an input %d deep: %v", n, err)
		}
		if _, err := p.Root.Fill(map[string]any{"l": json.RawMessage(deep(n))}, nil); (err == nil) != fits { // of a program
			t.Errorf("an input of JSON %d deep: %v", n, err)
		}
	}
}

// A number that nothing holds was written down as no value at all, and the step had succeeded.
func TestANumberThatNothingHoldsFitsNoSchema(t *testing.T) {
	schema, err := pipeline.ReadSchema([]byte(`{"type": "array"}`))
	if err != nil {
		t.Fatal(err)
	}
	for answer, why := range map[string]string{"[1e400]": `the number "1e400" is too large`, `[{"a": [-1e999]}]`: `the number "-1e999" is too large`, "[1e300, 1e-999]": ""} {
		if _, got := schema.Fit(answer); got != why {
			t.Errorf("%s: %q", answer, got)
		}
	}
}
