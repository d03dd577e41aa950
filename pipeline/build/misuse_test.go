package build_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/pipeline"
	"github.com/troupe-dev/troupe/pipeline/build"
)

// TestWhatIsNilOrOfAnotherPipelineIsAMistakeAndNoCrash builds what a compiler lets pass.
func TestWhatIsNilOrOfAnotherPipelineIsAMistakeAndNoCrash(t *testing.T) {
	var none *build.Step[string]
	ask := build.Ask{Prompt: build.Text("x")}
	other := build.New("other")
	theirs := build.Param[string](other, "x", "")
	step := build.Agent[string](other, "a", ask)
	for want, make := range map[string]func(p *build.Pipeline){
		"step a: a step that it comes after is nil": func(p *build.Pipeline) {
			build.Agent[string](p, "a", build.Ask{Prompt: build.Text("x"), Rules: build.Rules{After: []build.Stepper{nil}}})
		},
		"step b: a step that it comes after is nil": func(p *build.Pipeline) {
			build.Agent[string](p, "b", build.Ask{Prompt: build.Text("x"), Rules: build.Rules{After: []build.Stepper{none}}})
		},
		"step c: step first, which it comes after, is one of pipeline other": func(p *build.Pipeline) {
			build.Agent[string](p, "c", build.Ask{Prompt: build.Text("x"), Rules: build.Rules{After: []build.Stepper{build.Agent[string](other, "first", ask)}}})
		},
		"step a: the function that says what is done for each item is nil": func(p *build.Pipeline) {
			build.ForEach[string, string](p, "a", build.Const([]string{"a"}), nil)
		},
		"step b: the function that says": func(p *build.Pipeline) { build.ToolEach[string](p, "b", "t", build.Const([]string{"a"}), nil) },
		"step c: the function that says": func(p *build.Pipeline) { build.RunEach[string](p, "c", other, build.Const([]string{"a"}), nil) },
		"step a: the pipeline that it runs is nil": func(p *build.Pipeline) {
			build.Run(p, "a", nil, nil, build.Rules{})
		},
		"step b: the pipeline that it runs is nil": func(p *build.Pipeline) { build.RunUntil(p, "b", nil, build.Call{}) },
		"step c: the pipeline that it runs is nil": func(p *build.Pipeline) {
			build.RunEach(p, "c", nil, build.Const([]string{"a"}), func(build.Ref[string]) build.Call { return build.Call{} })
		},
		"step a: values of two pipelines, other and p, are used together": func(p *build.Pipeline) {
			build.Agent[string](p, "a", build.Ask{Prompt: build.Text("x", theirs)})
		},
		"step b: values of two pipelines": func(p *build.Pipeline) {
			build.Tool(p, "b", "t", map[string]any{"x": build.Or(theirs, "y")}, build.Rules{})
		},
		"step c: values of two pipelines": func(p *build.Pipeline) {
			build.Agent[string](p, "c", build.Ask{Prompt: build.Text("x"), Rules: build.Rules{When: build.Not(build.Is(step.Output(), "y"))}})
		},
		"output r: values of two pipelines": func(p *build.Pipeline) { build.Return(p, "r", step.Output()) },
		"output z: a value is the zero Ref": func(p *build.Pipeline) { build.Return(p, "z", build.Ref[string]{}) },
		"workspace: values of two pipelines": func(p *build.Pipeline) {
			p.Workspace(build.Text(theirs), "")
		},
		"output f: a value is nil": func(p *build.Pipeline) { build.Return(p, "f", build.Field[string](nil, "x")) },
	} {
		p := build.New("p")
		build.Agent[string](p, "first", ask)
		make(p)
		if _, err := p.Plan(pipeline.Options{}); err == nil || !strings.HasPrefix(err.Error(), "pipeline p: "+want) {
			t.Errorf("%v\nwant:\n%s", err, want)
		}
	}
}

// shape has fields of many types.
type shape struct {
	verdict
	Name  string          `json:"name"`
	Size  int32           `json:"size"`
	Parts []verdict       `json:"parts"`
	Sums  map[string]int  `json:"sums"`
	More  *float64        `json:"more"`
	When  time.Time       `json:"when"`
	Any   any             `json:"any"`
	Raw   json.RawMessage `json:"raw"`
	Plain bool
	Lists [][]map[string]int `json:"lists"`
}

func TestAFieldIsOfTheTypeThatItsObjectHas(t *testing.T) {
	of := build.Const(shape{})
	type list = []map[string]any
	for name, r := range map[string]build.Value{
		"good": build.Field[bool](of, "good"), "name": build.Field[string](of, "name"), "size": build.Field[float64](of, "size"), "parts": build.Field[list](of, "parts"),
		"sums": build.Field[map[string]int](of, "sums"), "more": build.Field[float64](of, "more"), "when": build.Field[string](of, "when"), "any": build.Field[int](of, "any"),
		"raw": build.Field[bool](of, "raw"), "Plain": build.Field[bool](of, "Plain"), "none": build.Field[bool](of, "none"),
		"a": build.Field[int](build.Field[map[string]int](of, "sums"), "a"), "lists": build.Field[[][]verdict](of, "lists"),
	} {
		if err := problem(r); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for want, r := range map[string]build.Value{
		"field good of build_test.shape is a bool, and no int":           build.Field[int](of, "good"),
		"field size of build_test.shape is a int32, and no string":       build.Field[string](of, "size"),
		"field more of build_test.shape is a *float64, and no int":       build.Field[int](of, "more"),
		"field parts of build_test.shape is a []build_test.verdict, and": build.Field[[]string](of, "parts"),
		"field a of map[string]int is a int, and no bool":                build.Field[bool](build.Field[map[string]int](of, "sums"), "a"),
		"field Plain of build_test.shape is a bool, and no []bool":       build.Field[[]bool](of, "Plain"),
	} {
		if err := problem(r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant:\n%s", err, want)
		}
	}
}

// problem is what Plan says of a value, but for what is read in the text.
func problem(v build.Value) error {
	p := build.New("p")
	build.Tool(p, "a", "t", map[string]any{"x": v}, build.Rules{})
	_, err := p.Source()
	return err
}
