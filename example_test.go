package troupe_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model/script"
	"github.com/troupe-dev/troupe/tools"
)

// scripted is a model without a language model: what it answers stands in a script.
func scripted(text string) troupe.Model {
	s, err := script.Parse("example", []byte(text))
	if err != nil {
		fmt.Println(err)
		return nil
	}
	return s.Model()
}

// A runtime, a session, a prompt.
func Example() {
	ctx := context.Background()
	rt, err := troupe.New(ctx, troupe.Options{Model: scripted(`
rules:
  - match: '^greet (\w+)'
    reply: {text: 'Hello, ${1}.'}
`)})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Close(ctx)
	s, err := rt.Session(ctx, troupe.SessionOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err := s.Run(ctx, "greet Ada")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.Text, res.Outcome)
	// Output: Hello, Ada. done
}

// A tool of the program is a plain function; the schema of its arguments is derived from their type.
func Example_ownTool() {
	type weather struct {
		City string `json:"city" desc:"Name of the city."`
		Days int    `json:"days,omitempty" desc:"How many days ahead." min:"0" max:"14"`
	}
	forecast, err := tools.Func(tools.Spec{
		Name: "forecast", Description: "Tells the weather. Example: `{\"city\": \"Ulm\"}`", Effect: messages.Effect_PURE, NoWorkspace: true,
	}, func(_ *tools.Context, a weather) (*tools.Result, error) {
		return &tools.Result{Content: "rain in " + a.City}, nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	rt, err := troupe.New(ctx, troupe.Options{
		Tools:  []troupe.Tool{forecast},
		Agents: []troupe.Agent{{Name: "default", System: "You tell the weather.", Tools: []string{"forecast"}}},
		Model: scripted(`
rules:
  - match: weather
    steps:
      - tool_calls: [{name: forecast, arguments: {city: Ulm}}]
      - text: 'It says: ${tool.content}.'
`),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Close(ctx)
	s, err := rt.Session(ctx, troupe.SessionOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err := s.Run(ctx, "What will the weather be?")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.Text)
	for _, c := range res.ToolCalls {
		fmt.Println(c.GetName(), c.GetArguments())
	}
	reply, err := s.Call(ctx, "forecast", weather{City: "Bonn"}) // the program itself, in its place in the queue of turns
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(reply.GetContent())
	// Output:
	// It says: rain in Ulm.
	// forecast {"city":"Ulm"}
	// rain in Bonn
}

// Stream shows a turn while it happens: deltas first, then what became durable.
func ExampleWorker_Stream() {
	ctx := context.Background()
	rt, err := troupe.New(ctx, troupe.Options{Model: scripted(`
rules:
  - reply: {text: 'One word after the other.', chunk_size: 10}
`)})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Close(ctx)
	s, err := rt.Session(ctx, troupe.SessionOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for ev, err := range s.Stream(ctx, "Tell me something") {
		if err != nil {
			fmt.Println(err)
			return
		}
		switch ev.GetType() {
		case messages.EventTextDelta:
			fmt.Printf("%q\n", ev.GetText())
		case messages.EventTurnCompleted:
			fmt.Println(ev.GetOutcome())
		}
	}
	// Output:
	// "One word a"
	// "fter the o"
	// "ther."
	// done
}

// A session lives in its data directory: another runtime finds it there.
func ExampleRuntime_Open() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	options := troupe.Options{DataDir: dir, Model: scripted(`
rules:
  - turn: 1
    reply: {text: Noted.}
  - reply: {text: 'You have spoken ${turn} times.'}
`)}
	rt, err := troupe.New(ctx, options)
	if err != nil {
		fmt.Println(err)
		return
	}
	s, err := rt.Session(ctx, troupe.SessionOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := s.Run(ctx, "Remember me"); err != nil {
		fmt.Println(err)
		return
	}
	if err := rt.Close(ctx); err != nil {
		fmt.Println(err)
		return
	}

	rt, err = troupe.New(ctx, options)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Close(ctx)
	again, err := rt.Open(ctx, s.ID())
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err := again.Run(ctx, "Do you?")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.Text)
	// Output: You have spoken 2 times.
}
