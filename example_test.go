package troupe_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model/script"
	"github.com/troupe-dev/troupe/tools"
)

// scripted is a model for the examples: no language model is running. A real one is made with
// model/openai.
func scripted(text string) troupe.Model {
	s, err := script.Parse("example", []byte(text))
	if err != nil {
		panic(err)
	}
	return s.Model()
}

func ExampleNew() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "note.txt"), []byte("All is well.\n"), 0o600); err != nil {
		panic(err)
	}
	rt, err := troupe.New(ctx, troupe.Options{DataDir: filepath.Join(dir, "data"), Model: scripted(`
rules:
  - match: note
    steps:
      - tool_calls: [{name: read_file, arguments: {path: note.txt}}]
      - text: "I read the note. ${tool.content}"
`)})
	if err != nil {
		panic(err)
	}
	defer rt.Close(ctx)
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir, Trust: troupe.Full})
	if err != nil {
		panic(err)
	}
	res, err := s.Run(ctx, "What does the note say?")
	if err != nil {
		panic(err)
	}
	fmt.Println(res.Outcome)
	fmt.Println(res.Text)
	// Output:
	// done
	// I read the note.      1	All is well.
}

func ExampleWorker_Stream() {
	ctx := context.Background()
	rt, err := troupe.New(ctx, troupe.Options{Model: scripted(`
rules:
  - reply: {text: "Hello."}
`)})
	if err != nil {
		panic(err)
	}
	defer rt.Close(ctx)
	s, err := rt.Session(ctx, troupe.SessionOptions{})
	if err != nil {
		panic(err)
	}
	for ev, err := range s.Stream(ctx, "Say hello") {
		if err != nil {
			panic(err)
		}
		if ev.GetSeq() != 0 { // durable events; deltas carry no seq
			fmt.Println(ev.GetType())
		}
	}
	// Output:
	// input.accepted
	// turn.started
	// generation.started
	// generation.completed
	// turn.completed
}

func ExampleOptions_tools() {
	ctx := context.Background()
	type args struct {
		City string `json:"city" desc:"Name of the city."`
	}
	weather, err := tools.Func(tools.Spec{
		Name: "weather", Description: `Tells the weather. Example: {"city": "Oslo"}`, Effect: messages.Effect_PURE, NoWorkspace: true,
	}, func(_ *tools.Context, a args) (*tools.Result, error) {
		return &tools.Result{Content: "Rain in " + a.City}, nil
	})
	if err != nil {
		panic(err)
	}
	rt, err := troupe.New(ctx, troupe.Options{Tools: []troupe.Tool{weather}, Model: scripted(`
rules:
  - match: weather in (\w+)
    steps:
      - tool_calls: [{name: weather, arguments: {city: "${1}"}}]
      - text: "${tool.content}, I am told."
`)})
	if err != nil {
		panic(err)
	}
	defer rt.Close(ctx)
	s, err := rt.Session(ctx, troupe.SessionOptions{})
	if err != nil {
		panic(err)
	}
	res, err := s.Run(ctx, "What is the weather in Oslo?")
	if err != nil {
		panic(err)
	}
	fmt.Println(res.Text)
	// Output:
	// Rain in Oslo, I am told.
}

func ExampleRuntime_Do() {
	ctx := context.Background()
	rt, err := troupe.New(ctx, troupe.Options{Model: scripted(`
rules:
  - {match: topic, reply: {text: "Actors."}}
  - {match: again, turn: 2, reply: {text: "As I said: actors."}}
`)})
	if err != nil {
		panic(err)
	}
	defer rt.Close(ctx)
	first, err := rt.Do(ctx, troupe.Task{Prompt: "Name a topic."})
	if err != nil {
		panic(err)
	}
	second, err := rt.Do(ctx, troupe.Task{Prompt: "Say it again.", Conversation: first.Conversation})
	if err != nil {
		panic(err)
	}
	fmt.Println(second.FinalResponse)
	// Output:
	// As I said: actors.
}
