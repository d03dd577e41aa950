package troupe_test

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
)

// question is a run that asks a person, and needs no model.
const question = "version: 1\nname: question\nsteps:\n  - {id: ask, human: {message: 'a secret of ann?', choices: [publish, drop]}}\noutputs: {said: '${{ steps.ask.output }}'}\n"

// startRun asks for a run. more goes into the body beside the pipeline.
func (o *office) startRun(token, file, more string) (int, string) {
	o.t.Helper()
	text, err := json.Marshal(file)
	if err != nil {
		o.t.Fatal(err)
	}
	return o.do(token, "POST", "/api/pipelines/runs", `{"pipeline":`+string(text)+more+`}`)
}

// run starts one.
func (o *office) run(token, file, more string) (v messages.RunJSON) {
	o.t.Helper()
	status, text := o.startRun(token, file, more)
	if err := json.Unmarshal([]byte(text), &v); err != nil || status != 201 {
		o.t.Fatalf("start a run: %d %s", status, text)
	}
	return v
}

// in is the part of a body that says in which folder a run works.
func in(dir, more string) string {
	return `,"workspaces":[{"uri":"local:` + filepath.ToSlash(dir) + `"` + more + `}]`
}

// noFiles are models of which those that are files tell what they hold, as a script that cannot be read does.
type noFiles struct{ troupe.Model }

func (m noFiles) Resolve(name string) (*troupe.ResolvedModel, error) {
	if messages.ModelInFile(name) {
		return nil, errors.New("root:x:0:0")
	}
	return &troupe.ResolvedModel{Model: m.Model, Provider: "default", Name: name}, nil
}

func (noFiles) Providers() []string { return []string{"default"} }

func officeOfRuns(t *testing.T) *office {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	o := officeIn(t, root, troupe.Options{Models: noFiles{scripted("rules:\n  - {match: hi, reply: {text: Hello.}}\n")}})
	o.token("ann", "a", "read", "prompt")
	o.token("amy", "a", "read", "approve")
	o.token("bob", "b", allScopes()...)
	o.token("boss", "", allScopes()...)
	return o
}

func TestATokenThatMayPromptRunsPipelinesOfItsTenantAndSeesNoOthers(t *testing.T) {
	o := officeOfRuns(t)
	const file = "version: 1\nname: greet\nsteps:\n  - {id: a, agent: default, prompt: hi}\n  - {id: ask, needs: [a], human: {message: 'a secret of ann: ${{ steps.a.output }}', choices: [publish, drop]}}\noutputs: {said: '${{ steps.a.output }}'}\n"
	v := o.run("ann", file, in(o.dir, ""))
	asked := get[messages.RunJSON](o, "ann", "/api/pipelines/runs/"+v.ID+"?wait=change&after=1")
	for asked.State == "running" {
		asked = get[messages.RunJSON](o, "ann", "/api/pipelines/runs/"+v.ID+"?wait=change&after="+strconv.FormatUint(asked.Revision, 10))
	}
	waiting := get[[]messages.ApprovalJSON](o, "ann", "/api/approvals")
	if asked.State != "waiting" || len(waiting) != 1 {
		t.Fatalf("the run is %+v, what waits %+v", asked, waiting)
	}
	for _, other := range []string{"bob", "boss"} {
		for _, which := range []string{"", "?run=" + v.ID} {
			if got := get[[]messages.RunJSON](o, other, "/api/pipelines/runs"+which); len(got) != 0 {
				t.Errorf("%s sees %+v", other, got)
			}
		}
		for _, c := range [][3]string{
			{"GET", "/api/pipelines/runs/", ""},
			{"GET", "/api/pipelines/runs/", "?wait=end"},
			{"GET", "/api/pipelines/runs/", "?wait=change&after=1"},
			{"POST", "/api/pipelines/runs/", "/resume"},
			{"POST", "/api/pipelines/runs/", "/cancel"},
		} {
			body := ""
			if c[0] == "POST" {
				body = "{}"
			}
			never := "run_" + strings.Repeat("0", len(v.ID)-len("run_"))
			status, text := o.do(other, c[0], c[1]+v.ID+c[2], body)
			want, said := o.do(other, c[0], c[1]+never+c[2], body)
			if ids := map[string]string{"run": v.ID}; status != 404 || want != 404 || hide(text, ids) != hide(said, ids) {
				t.Errorf("%s %s%s by %s: %d %s\nof a run that never was: %d %s", c[0], c[1], c[2], other, status, text, want, said)
			}
		}
		if status, text := o.do(other, "POST", "/api/approvals/"+waiting[0].ID, `{"decision":"approved"}`); status != 404 {
			t.Errorf("%s answers: %d %s", other, status, text)
		}
	}
	for which, n := range map[string]int{"": 1, "?run=" + v.ID: 1, "?run=" + v.ID[:len(v.ID)-1]: 0} {
		if got := get[[]messages.RunJSON](o, "ann", "/api/pipelines/runs"+which); len(got) != n || n > 0 && got[0].ID != v.ID {
			t.Errorf("of %q ann sees %+v", which, got)
		}
	}
	if status, text := o.do("ann", "POST", "/api/approvals/"+waiting[0].ID, `{"decision":"approved"}`); status != 403 {
		t.Errorf("who may only prompt answers: %d %s", status, text)
	}
	if status, text := o.do("amy", "POST", "/api/approvals/"+waiting[0].ID, `{"decision":"approved"}`); status != 204 {
		t.Errorf("who may approve answers: %d %s", status, text)
	}
	if end := get[messages.RunJSON](o, "ann", "/api/pipelines/runs/"+v.ID+"?wait=end"); end.State != "succeeded" || string(end.Outputs) != `{"said":"Hello."}` {
		t.Errorf("the run came to %+v", end)
	}
}

func TestTheAuditSaysWhoRanAPipelineAndWhoAnswered(t *testing.T) {
	o := officeOfRuns(t)
	v := o.run("ann", question, "")
	runs := "/api/pipelines/runs/" + v.ID
	var waiting []messages.ApprovalJSON
	for len(waiting) == 0 {
		waiting = get[[]messages.ApprovalJSON](o, "ann", "/api/approvals")
	}
	if status, text := o.do("ann", "POST", runs+"/cancel", `{"by":"bob","reason":"enough"}`); status != 200 {
		t.Fatalf("cancel: %d %s", status, text)
	}
	get[messages.RunJSON](o, "ann", runs+"?wait=end")
	if status, text := o.do("ann", "POST", runs+"/resume", `{"by":"bob"}`); status != 200 {
		t.Fatalf("resume: %d %s", status, text)
	}
	for waiting = nil; len(waiting) == 0; {
		waiting = get[[]messages.ApprovalJSON](o, "ann", "/api/approvals")
	}
	if status, text := o.do("amy", "POST", "/api/approvals/"+waiting[0].ID, `{"decision":"rejected","message":"drop","by":"bob"}`); status != 204 {
		t.Fatalf("answer: %d %s", status, text)
	}
	get[messages.RunJSON](o, "ann", runs+"?wait=end")
	var said []string
	for _, a := range get[[]messages.AuditJSON](o, "ann", "/api/audit") {
		if a.Kind == "run" {
			said = append(said, strings.Join([]string{a.What, a.Decision, a.By, a.Session}, " "))
		}
	}
	want := []string{"question started ann " + v.Session, "question cancelled ann " + v.Session, "question resumed ann " + v.Session, "ask drop amy " + v.Session}
	if !slices.Equal(said, want) {
		t.Errorf("the audit says\n%s\nand not\n%s", strings.Join(said, "\n"), strings.Join(want, "\n"))
	}
	if got := get[[]messages.AuditJSON](o, "bob", "/api/audit"); len(got) != 0 {
		t.Errorf("bob's audit: %+v", got)
	}
}

func TestARunOfATokenDoesWhatItsSessionsMayAndNoMore(t *testing.T) {
	o := officeOfRuns(t)
	outside, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	agent := func(head, step string) string {
		return "version: 1\nname: x\n" + head + "steps:\n  - {id: a, agent: default, prompt: hi" + step + "}\n"
	}
	const script = "scripted//etc/passwd.yaml"
	for _, c := range []struct{ what, file, more string }{
		{"in a folder outside the roots", agent("", ""), in(outside, "")},
		{"with full trust", agent("", ""), in(o.dir, `,"trust":"full"`)},
		{"with rules", agent("", ""), `,"rules":["exec(*)"]`},
		{"with a file as its model", agent("", ""), `,"model":"` + script + `"`},
		{"with a recording as its model", agent("", ""), `,"model":"replay/x"`},
		{"with a file as its file's model", agent("defaults: {model: "+script+"}\n", ""), ""},
		{"with a file as a step's model", agent("", ", model: "+script), ""},
		{"with a file as an agent's model", agent("agents: {w: {system: x, model: "+script+"}}\n", ""), ""},
		{"with a file as a model of a file that it runs", "version: 1\nname: x\nsteps:\n  - {id: a, pipeline: b.yaml}\n", `,"files":[{"path":"b.yaml","text":"version: 1\nname: y\nsteps:\n  - {id: a, agent: default, prompt: hi, model: ` + script + `}\n"}]`},
		{"in another tenant's session", agent("", ""), `,"workspaces":[{"uri":"troupe:/sessions/` + o.run("bob", question, "").Session + `"}]`},
	} {
		want := 403
		if strings.HasPrefix(c.what, "in another tenant's") {
			want = 404
		}
		if status, text := o.startRun("ann", c.file, c.more); status != want || strings.Contains(text, "root:x") {
			t.Errorf("%s: %d %s", c.what, status, text)
		}
		if status, text := o.startRun("boss", c.file, c.more); status == 403 {
			t.Errorf("the whole server's admin, %s: %d %s", c.what, status, text)
		}
	}
	// What an expression gives is looked at when it is there, also where a client says of itself that it may; and what a change brings, too.
	byInput := "version: 1\nname: x\ninputs: {m: {required: true}}\nsteps:\n  - {id: a, agent: default, prompt: hi, model: '${{ inputs.m }}'}\n"
	v := o.run("ann", byInput, `,"inputs":{"m":"`+script+`"}`)
	end := get[messages.RunJSON](o, "ann", "/api/pipelines/runs/"+v.ID+"?wait=end")
	if end.State != "failed" || !strings.Contains(end.Error, "is a file of the server") {
		t.Errorf("a model by an expression: %+v", end)
	}
	for _, model := range []string{script, "${{ inputs.m }}"} {
		changed, err := json.Marshal(messages.RunWordJSON{PlanHash: "00", AcceptChanges: true, Files: []messages.RunFileJSON{{Path: "p.yaml", Text: strings.ReplaceAll(byInput, "${{ inputs.m }}", model)}}})
		if err != nil {
			t.Fatal(err)
		}
		status, text := o.do("ann", "POST", "/api/pipelines/runs/"+v.ID+"/resume", string(changed))
		if model == script {
			if status != 403 || strings.Contains(text, "root:x") {
				t.Errorf("resumed with a file as its model: %d %s", status, text)
			}
			continue
		}
		if end = get[messages.RunJSON](o, "ann", "/api/pipelines/runs/"+v.ID+"?wait=end"); status != 200 || !strings.Contains(end.Error, "is a file of the server") {
			t.Errorf("resumed with a model by an expression: %d %s, then %+v", status, text, end)
		}
	}
	said := messages.NewID(messages.SessionPrefix)
	body, err := json.Marshal(map[string]any{"id": said, "run": map[string]any{"run_id": messages.RunOf(said), "by": "owner", "bounded": false, "inputs_json": `{"m":"` + script + `"}`, "sources": []any{map[string]any{"path": "p.yaml", "text": byInput}}}})
	if err != nil {
		t.Fatal(err)
	}
	if status, text := o.do("ann", "POST", "/api/sessions", string(body)); status != 201 {
		t.Fatalf("%d %s", status, text)
	}
	if end = get[messages.RunJSON](o, "ann", "/api/pipelines/runs/"+messages.RunOf(said)+"?wait=end"); !strings.Contains(end.Error, "is a file of the server") {
		t.Errorf("a run that says of itself what it may: %+v", end)
	}
	// A tool's step does what the session's policy allows: here nobody is asked, so nothing is written.
	v = o.run("ann", "version: 1\nname: x\nsteps:\n  - {id: a, tool: write_file, with: {path: a.txt, content: x}}\n", in(o.dir, "")+`,"no_input":true`)
	if end = get[messages.RunJSON](o, "ann", "/api/pipelines/runs/"+v.ID+"?wait=end"); end.State != "failed" || len(glob(t, filepath.Join(o.dir, "*"))) != 0 {
		t.Errorf("a tool's step that nobody allowed: %+v", end)
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return found
}
