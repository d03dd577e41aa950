package pipeline_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/pipeline"
)

const head = "version: 1\nname: t\n"

func parse(t *testing.T, text string) *pipeline.Plan {
	t.Helper()
	p, err := pipeline.Parse("t.yaml", text, pipeline.Options{})
	if err != nil {
		t.Fatalf("%v\nof\n%s", err, text)
	}
	return p
}

// known is what there is besides the files of testdata/wrong.
func known() pipeline.Options {
	return pipeline.Options{
		Agents: []string{"default", "coder"}, Tools: []string{"exec", "grep"}, Server: func(name string) bool { return strings.HasPrefix(name, "notes_") },
		Takes: func(tool string) []byte {
			if tool != "grep" {
				return nil
			}
			return []byte(`{"type":"object","additionalProperties":false,"required":["pattern"],"properties":{"pattern":{"type":"string"},"path":{"type":"string"}}}`)
		},
		Model: func(name string) (what, fix string) {
			if name != "small" {
				return "there is no model " + name, "configured is small"
			}
			return "", ""
		},
		Load: func(string) ([]byte, error) {
			return []byte("version: 1\nname: inner\ninputs: {topic: {required: true}}\nsteps: [{id: a, agent: coder, prompt: x}]\n"), nil
		},
	}
}

// What is not among the built-in tools may be one of a server, and what a file says of models and arguments holds as far as it is known before anything runs.
func TestWhatIsKnownElsewhereIsTaken(t *testing.T) {
	for _, step := range []string{
		`{id: a, tool: notes_find, with: {anything: 1}}`, `{id: a, tool: exec, with: {anything: 1}}`, `{id: a, tool: grep, with: {pattern: x, path: y}}`,
		`{id: a, agent: coder, model: small, prompt: x}`, `{id: a, agent: coder, model: "${{ inputs.m }}", prompt: x}`, `{id: a, pipeline: inner.yaml, with: {topic: x}}`,
		`{id: a, agent: coder, prompt: x, output: {schema: {type: [string, "null"], remark: of mine, properties: {type: {enum: [a]}}}}}`,
		"{id: a, agent: coder, prompt: x, when: \"inputs.m == 'x'\\n && true\"}",
	} {
		if _, err := pipeline.Parse("t.yaml", head+"inputs: {m: {default: other}}\nsteps:\n  - "+step+"\n", known()); err != nil {
			t.Errorf("%s: %v", step, err)
		}
	}
}

// Each file of testdata/wrong says in its last comment lines what is wrong with it, as it is told.
func TestWhatIsWrongIsToldWithItsPlace(t *testing.T) {
	files, err := filepath.Glob("testdata/wrong/*.yaml")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		body, want, _ := strings.Cut(string(text), "#-\n")
		_, err = pipeline.Parse(filepath.Base(name), body, known())
		var got pipeline.Problems
		if !errors.As(err, &got) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if os.Getenv("UPDATE_GOLDEN") != "" {
			if err := os.WriteFile(name, []byte(body+"#-\n# "+strings.ReplaceAll(got.Error(), "\n", "\n# ")+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want = strings.ReplaceAll(strings.TrimSuffix(want, "\n"), "\n# ", "\n")
		if want = strings.TrimPrefix(want, "# "); got.Error() != want {
			t.Errorf("%s says:\n%s\nand should say:\n%s", name, got.Error(), want)
		}
	}
}

func TestExamplesOfTheDesignAreUnderstood(t *testing.T) {
	for name, waves := range map[string]int{"review": 3, "triage": 4} {
		text, err := os.ReadFile("testdata/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		if p := parse(t, string(text)); len(p.Root.Waves()) != waves {
			t.Errorf("%s has %d waves, not %d", name, len(p.Root.Waves()), waves)
		}
	}
}

func TestThePlansHashIsOfWhatItSays(t *testing.T) {
	step := "steps:\n  - {id: a, agent: x, prompt: hello}\n"
	a, b := parse(t, head+step), parse(t, head+"# a remark\nsteps:\n  - id: a\n    agent: x\n    prompt: hello\n")
	if !bytes.Equal(a.Hash, b.Hash) {
		t.Error("a comment and another layout make another plan")
	}
	if c := parse(t, head+strings.Replace(step, "hello", "goodbye", 1)); bytes.Equal(a.Hash, c.Hash) {
		t.Error("another prompt makes the same plan")
	}
}

func TestNestedPipelinesAreReadAndBounded(t *testing.T) {
	files := map[string]string{
		"sub/inner.yaml": head + "inputs: {topic: {required: true}}\nsteps:\n  - {id: a, agent: x, prompt: '${{ inputs.topic }}'}\n",
		"self.yaml":      head + "steps:\n  - {id: a, pipeline: self.yaml}\n",
	}
	load := func(path string) ([]byte, error) {
		if text, ok := files[path]; ok {
			return []byte(text), nil
		}
		return nil, os.ErrNotExist
	}
	for step, want := range map[string]string{
		"{id: a, pipeline: sub/inner.yaml, with: {topic: x}}":          "",
		"{id: a, pipeline: sub/inner.yaml}":                            `gives sub/inner.yaml no input "topic"`,
		"{id: a, pipeline: sub/inner.yaml, with: {topic: x, more: y}}": `an input "more" that it does not have`,
		"{id: a, pipeline: self.yaml}":                                 "a pipeline cannot run itself",
		"{id: a, pipeline: gone.yaml}":                                 "file does not exist",
	} {
		p, err := pipeline.Parse("t.yaml", head+"steps:\n  - "+step+"\n", pipeline.Options{Load: load})
		switch {
		case want == "" && (err != nil || len(p.Sources) != 2):
			t.Errorf("%s: %v", step, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", step, err, want)
		}
	}
}

func TestInputsAreCheckedAndFilled(t *testing.T) {
	f := parse(t, head+`inputs:
  n: {type: integer, default: 3}
  who: {required: true}
  text: {type: file}
  all: {type: list}
steps:
  - {id: a, agent: x, prompt: hello}
`).Root
	load := func(path string) (string, error) { return "of " + path, nil }
	given, err := f.Set([]string{"who=a=b", "text=x.txt", "all=[1, 2]"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := f.Fill(given, load)
	if err != nil || got["n"] != 3 || got["who"] != "a=b" || got["text"] != "of x.txt" || len(got["all"].([]any)) != 2 {
		t.Errorf("%v, %v", got, err)
	}
	for _, words := range [][]string{{"n=x", "who=a"}, {"n=1.5", "who=a"}, {"nn=1"}, {"who"}, {"n=1"}, {"all={}", "who=a"}} {
		given, err := f.Set(words)
		if err == nil {
			_, err = f.Fill(given, load)
		}
		if err == nil {
			t.Errorf("%v is taken", words)
		}
	}
}
