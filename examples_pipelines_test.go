package troupe_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/pipeline"
)

// Every pipeline of examples/pipelines runs offline to the outputs that its last line names.
func TestExamplesOfPipelinesRunToTheirOutputs(t *testing.T) {
	const dir = "examples/pipelines"
	models, err := os.ReadFile(filepath.Join(dir, "models.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) < 12 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		_, want, ok := strings.Cut(string(text), "\n# outputs: ")
		if !ok {
			continue // of others
		}
		t.Run(filepath.Base(name), func(t *testing.T) {
			p, err := pipeline.Parse(filepath.Base(name), string(text), pipeline.Options{Load: func(file string) ([]byte, error) { return os.ReadFile(filepath.Join(dir, file)) }})
			if err != nil {
				t.Fatal(err)
			}
			rt, ctx := runtimeOf(t, troupe.Options{Model: scripted(string(models)), Sandbox: unconfined(t)})
			run, err := rt.RunPipeline(ctx, p, troupe.RunOptions{Dir: exampleFolder(t, p.Root.Name), Trust: troupe.Full, Inputs: exampleInputs(p.Root.Name)})
			if err != nil {
				t.Fatal(err)
			}
			v := through(t, rt, run)
			if got := v.GetOutputsJson(); !sameJSON(t, got, want) {
				t.Errorf("%s: %s: outputs %s, want %s", v.GetState(), v.GetError(), got, want)
			}
		})
	}
}

// through lets in whatever is asked, until the run is over.
func through(t *testing.T, rt *troupe.Runtime, run *troupe.Run) *troupe.RunView {
	t.Helper()
	ctx := t.Context()
	ended := make(chan *troupe.RunView, 1)
	go func() {
		v, err := run.Wait(ctx)
		if err != nil {
			t.Error(err)
		}
		ended <- v
	}()
	for {
		asked, err := rt.Approvals(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range asked {
			if !json.Valid([]byte(a.GetArguments())) {
				t.Errorf("what is asked has arguments that are no JSON: %s", a.GetArguments())
			}
			_ = rt.ResolveApproval(ctx, a.GetApprovalId(), troupe.Answer{Decision: troupe.Approved}) // it may be answered already
		}
		select {
		case v := <-ended:
			return v
		case <-time.After(5 * time.Millisecond): // of some questions there is no event
		}
	}
}

func exampleFolder(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{"bees.txt": "bees\n", "ships.txt": "ships\n"}
	switch name {
	case "extract":
		files = map[string]string{}
		for i := range 500 {
			text := fmt.Sprintf("n%d %d", i, 1500+i)
			if i%10 == 0 {
				text = fmt.Sprintf("n%d, about %d", i, 1500+i)
			}
			files[fmt.Sprintf("f%03d.txt", i)] = text
		}
	case "triage_tests":
		files = map[string]string{"check.sh": "if grep -q 'total%n' bill.go; then echo ok; else echo '--- FAIL: TestUnevenSplit'; exit 1; fi\n"}
		if err := os.CopyFS(dir, os.DirFS("examples/broken")); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// exampleInputs have the tests of an example run in no time. Its own default, which takes seconds, is used by TestTheTriageOfTestsMendsThem.
func exampleInputs(name string) map[string]any {
	if name == "triage_tests" {
		return map[string]any{"command": "sh check.sh"}
	}
	return nil
}

// The example that mends tests runs them, and lets them tell whether they are mended.
func TestTheTriageOfTestsMendsThem(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds and runs a package's tests twice, which takes seconds")
	}
	p, rt, ctx := readyExample(t, "triage_tests.yaml")
	dir := exampleFolder(t, p.Root.Name)
	run, err := rt.RunPipeline(ctx, p, troupe.RunOptions{Dir: dir, Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	if v := through(t, rt, run); !strings.Contains(v.GetOutputsJson(), `"passed":true`) {
		t.Errorf("%s: %s: %s", v.GetState(), v.GetError(), v.GetOutputsJson())
	}
	again, err := rt.RunPipeline(ctx, p, troupe.RunOptions{Dir: dir, Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	if v := through(t, rt, again); !strings.Contains(v.GetOutputsJson(), `"summary":"nothing failed"`) || !strings.Contains(v.GetOutputsJson(), `"passed":true`) {
		t.Errorf("when nothing fails: %s: %s: %s", v.GetState(), v.GetError(), v.GetOutputsJson())
	}
}

// readyExample is an example, and a runtime whose model is the script beside it.
func readyExample(t *testing.T, file string) (*pipeline.Plan, *troupe.Runtime, context.Context) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("examples/pipelines", file))
	if err != nil {
		t.Fatal(err)
	}
	p, err := pipeline.Parse(file, string(text), pipeline.Options{})
	if err != nil {
		t.Fatal(err)
	}
	models, err := os.ReadFile("examples/pipelines/models.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rt, ctx := runtimeOf(t, troupe.Options{Model: scripted(string(models)), Sandbox: unconfined(t)})
	return p, rt, ctx
}

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	return fmt.Sprint(x) == fmt.Sprint(y)
}
