package troupetest_test

import (
	"context"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/pipeline"
	"github.com/troupe-dev/troupe/troupetest"
)

// house is what the transcripts below are played with.
const house = `
name: house
rules:
  - agent: scout
    match: 'look at (\w+)'
    steps:
      - {tool_calls: [{name: read_file, arguments: {path: '${1}.txt'}}], delay: 5ms}
      - {text: 'scout ${1}: ${tool.content}'}
  - match: '^both'
    steps:
      - {tool_calls: [{name: delegate, arguments: {task: look at a, agent: scout}}, {name: delegate, arguments: {task: look at b, agent: scout}}]}
      - {text: 'it came to: ${tool.content}'}
  - match: '^back'
    steps:
      - {tool_calls: [{name: delegate, arguments: {task: look at a, agent: scout, background: true}}]}
      - {text: 'begun'}
  - match: 'The task that you delegated'
    reply: {text: thanks}
  - match: '^write (\S+)'
    steps:
      - {tool_calls: [{name: write_file, arguments: {path: '${1}', content: hi}}, {name: write_file, arguments: {path: '${1}.2', content: hi}}]}
      - {text: 'it came to: ${tool.content}'}
  - {match: '^hello', reply: {text: hello}}
`

// staged plays a transcript with the house, and with a pipeline if there is one.
func staged(t *testing.T, text, plan string) *troupetest.Played {
	t.Helper()
	tr, err := troupetest.ParseTranscript("t.txt", text)
	if err != nil {
		t.Fatal(err)
	}
	s := troupetest.Stage{Dir: t.TempDir()}
	if plan != "" {
		if s.Plan, err = pipeline.Parse("p.yaml", plan, pipeline.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	rt := troupetest.Runtime(t, troupe.Options{Model: troupetest.Model(t, house), Agents: []troupe.Agent{
		{Name: "default", Tools: []string{"read_file", "write_file", "delegate"}}, {Name: "scout", Tools: []string{"read_file"}},
	}})
	p, err := tr.Play(t.Context(), rt, s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestWhatAnAgentThatWasDelegatedToDoesStandsAboveItsResult is played often: two agents work side by side, and the order is the same each time.
func TestWhatAnAgentThatWasDelegatedToDoesStandsAboveItsResult(t *testing.T) {
	const text = `allow: @read
allow: delegate

> both
call delegate {"agent": "scout", "task": "look at a"}
call delegate {"agent": "scout", "task": "look at b"}
by scout call read_file {"path": "a.txt"}
by scout result read_file error file_not_found
by scout | ...
by scout < scout a: File not found: a.txt
by scout end done
result delegate ok
| scout a: File not found: a.txt
by scout call read_file {"path": "b.txt"}
by scout result read_file error file_not_found
by scout | File not found: b.txt
by scout < ...
by scout end done
result delegate ok
| ...
< it came to: scout b: File not found: b.txt
end done

> back
call delegate {"agent": "scout", "background": true, "task": "look at a"}
result delegate ok
| Worker wrk_1 has begun. Its answer comes as a message: go on, or end your turn, and do not wait for it here.
< begun
end done
woken
< thanks
end done

> hello
< hello
end done
`
	for range 20 {
		if p := staged(t, text, ""); !p.Same() {
			t.Fatal(p.Diff())
		}
	}
	if p := staged(t, "allow: @read\nallow: delegate\n> both\n> back\n\n> back\n", ""); !staged(t, p.Text(), "").Same() {
		t.Errorf("what was written is not what comes:\n%s", p.Text())
	}
}

func TestQuestionsAreAnsweredAsTheTranscriptSays(t *testing.T) {
	const text = `> write a.txt
call write_file {"content": "hi", "path": "a.txt"}
call write_file {"content": "hi", "path": "a.txt.2"}
approve write_file
result write_file ok
| ...
deny write_file not on a Friday
result write_file denied user_rejected
| Operation rejected by user
| Their message: not on a Friday
< ...
end done
`
	if p := staged(t, text, ""); !p.Same() {
		t.Error(p.Diff())
	}
	p := staged(t, "> write a.txt\ncancel write_file\n\n> write b.txt\napprove write_file\n", "")
	for _, want := range []string{"cancel write_file\nresult write_file denied user_rejected\n| Operation cancelled by user", "end aborted", "deny write_file the transcript has no answer\nresult write_file denied"} {
		if !strings.Contains(p.Text(), want) {
			t.Errorf("without %q:\n%s", want, p.Text())
		}
	}
	if p := staged(t, "> hello\napprove write_file\n< hello\nend done\n", ""); p.Diff() != "t.txt:1: hello\n- approve write_file\n  < hello\n  end done\n" {
		t.Errorf("an answer to nothing:\n%s", p.Diff())
	}
	if p := staged(t, "> write a.txt\n", ""); !strings.Contains(p.Text(), "permission_denied") {
		t.Errorf("nobody is asked without an answer:\n%s", p.Text())
	}
}

const gates = `
version: 1
name: gates
steps:
  - {id: gate, human: {message: "Go on?", choices: [ship, hold]}}
  - {id: begin, needs: [gate], when: 'steps.gate.output == "ship"', agent: default, prompt: "write c.txt", approve: {before: [write_file]}}
outputs: {said: "${{ steps.gate.output }}"}
`

func TestTheQuestionsOfAPipelineAreAnsweredAsTheTranscriptSays(t *testing.T) {
	const head = "pipeline: p.yaml\n"
	_, err := troupetest.ParseTranscript("t.txt", head+"run\nanswer gate\n")
	if err == nil || !strings.Contains(err.Error(), "the answer has no choice") {
		t.Errorf("an answer without a choice: %v", err)
	}
	play := func(text string) *troupetest.Played { return staged(t, text, gates) }
	const text = head + `run
approve write_file
deny write_file enough
answer gate ship
step gate succeeded
step begin succeeded
outputs {"said": "ship"}
end succeeded
`
	if p := play(text); !p.Same() || !p.Scripted {
		t.Errorf("%v:\n%s", p.Scripted, p.Diff())
	}
	if p := play(head + "run\nanswer gate hold\n"); !strings.Contains(p.Text(), "step begin skipped") {
		t.Errorf("held back:\n%s", p.Text())
	}
	if p := play(head + "run\nanswer gate maybe\n"); !strings.Contains(p.Text(), "answer gate hold\n") || p.Same() {
		t.Errorf("no such choice:\n%s", p.Text())
	}
}

// TestTheInputsOfTypeFileAreReadBesideTheTranscript has the text of a file in a prompt.
func TestTheInputsOfTypeFileAreReadBesideTheTranscript(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"word.txt": "hello river",
		"p.yaml":   "version: 1\nname: p\ninputs: {word: {type: file, required: true}}\nsteps: [{id: a, agent: default, prompt: \"${{ inputs.word }}\"}]\noutputs: {said: \"${{ steps.a.output }}\"}\n",
		"s.yaml":   "name: s\nrules: [{match: '^hello (\\w+)', reply: {text: 'Good day, ${1}.'}}]\n",
		"t.txt":    "model: s.yaml\npipeline: p.yaml\nset: word=word.txt\n\nrun\nstep a succeeded\noutputs {\"said\": \"Good day, river.\"}\nend succeeded\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	troupetest.Check(t, filepath.Join(dir, "t.txt"), troupe.Options{})
}

func TestWhatATranscriptNamesIsToldWithItsPlace(t *testing.T) {
	plan, err := pipeline.Parse("p.yaml", "version: 1\nname: p\ninputs: {who: {required: true}}\nsteps: [{id: a, agent: default, prompt: hello}]\n", pipeline.Options{})
	if err != nil {
		t.Fatal(err)
	}
	rt := troupetest.Runtime(t, troupe.Options{Model: troupetest.Model(t, house)})
	for text, want := range map[string]string{
		"allow: exec(\n> a":               "t.txt:1:8: allow: rule \"exec(\"",
		"\nagent: nobody\n> a":            "t.txt:2:8: agent: ",
		"pipeline: p.yaml\nset: h=1\nrun": "t.txt:2:6: set: \"h\": the pipeline has no such input",
		"pipeline: p.yaml\nrun":           "t.txt:1:11: pipeline: input who of pipeline p is missing: give it with a line set: who=VALUE",
	} {
		tr, err := troupetest.ParseTranscript("t.txt", text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tr.Play(t.Context(), rt, troupetest.Stage{Dir: t.TempDir(), Plan: plan}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q:\n%v\nwant:\n%s", text, err, want)
		}
	}
	for text, want := range map[string]string{"folder: none\n> a": "t.txt:1:9: folder: ", "folder: answers_test.go\n> a": "t.txt:1:9: folder: answers_test.go is no folder"} {
		tr, err := troupetest.ParseTranscript("t.txt", text)
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.Furnish(t.TempDir()); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q:\n%v\nwant:\n%s", text, err, want)
		}
	}
}

// real is a model that does not say that it is a script.
type real struct{ troupe.Model }

// Stream implements model.Model.
func (m real) Stream(ctx context.Context, r *model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		for e, err := range m.Model.Stream(ctx, r) {
			e.Meta.Scripted = ""
			if !yield(e, err) {
				return
			}
		}
	}
}

// TestARunThatALanguageModelAnsweredIsNotCalledScripted has a model that does not say that it is a script.
func TestARunThatALanguageModelAnsweredIsNotCalledScripted(t *testing.T) {
	tr, err := troupetest.ParseTranscript("t.txt", "pipeline: p.yaml\nrun\n")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := pipeline.Parse("p.yaml", "version: 1\nname: p\nsteps: [{id: a, agent: default, prompt: hello}]\n", pipeline.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := tr.Play(t.Context(), troupetest.Runtime(t, troupe.Options{Model: real{troupetest.Model(t, house)}}), troupetest.Stage{Plan: plan})
	if err != nil || p.Scripted {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestARunIsNotWaitedForByWhoIsNoLongerThere is cancelled while questions are answered.
func TestARunIsNotWaitedForByWhoIsNoLongerThere(t *testing.T) {
	tr, err := troupetest.ParseTranscript("t.txt", "pipeline: p.yaml\nrun\nanswer gate ship\n")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := pipeline.Parse("p.yaml", "version: 1\nname: p\nsteps: [{id: gate, human: {message: \"Go?\", choices: [ship, hold]}}, {id: a, needs: [gate], agent: default, prompt: hello}]\n", pipeline.Options{})
	if err != nil {
		t.Fatal(err)
	}
	began := make(chan struct{}, 1000)
	for range 100 {
		rt := troupetest.Runtime(t, troupe.Options{Model: &stuck{began: began}})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := tr.Play(ctx, rt, troupetest.Stage{Dir: t.TempDir(), Plan: plan})
			ended <- err
		}()
		<-began
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("error: %v", err)
		}
	}
}

// stuck is a model that answers nobody.
type stuck struct{ began chan struct{} }

// Stream implements model.Model.
func (m *stuck) Stream(ctx context.Context, _ *model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		m.began <- struct{}{}
		<-ctx.Done()
		yield(model.Event{}, context.Cause(ctx))
	}
}
