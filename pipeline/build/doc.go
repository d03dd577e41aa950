// Package build makes pipelines in Go. What it builds is the text of a pipeline, so that a run of it is written down, checked, resumed and shown as
// that of any file; Source gives the text away.
//
// The values that a run will have are Refs of a Go type: parameters, outputs of steps, and what is made of them. A step that uses the Ref of another one
// needs it without saying so. Answers of agents are texts, or, asked for as another type, JSON that fits the schema of that type:
//
//	type Verdict struct {
//		Good bool   `json:"good"`
//		Why  string `json:"why"`
//	}
//
//	p := build.New("review")
//	topic := build.Param[string](p, "topic", "what to write about")
//	draft := build.Agent[string](p, "draft", build.Ask{Prompt: build.Text("Write about ", topic)})
//	check := build.Agent[Verdict](p, "check", build.Ask{Prompt: build.Text("Is this good?\n", draft.Output())})
//	good := build.Return(p, "good", build.Field[bool](check.Output(), "good"))
//	plan, err := p.Plan(pipeline.Options{})
//
// The plan goes to Runtime.RunPipeline, and good.From reads the output of the run. Mistakes are told by Plan, all at once.
package build
