package troupe_test

import (
	"context"
	"fmt"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// Tasks chain by value: what one returns, the next continues.
func ExampleRuntime_Do() {
	ctx := context.Background()
	rt, err := troupe.New(ctx, troupe.Options{Model: scripted(`
rules:
  - {match: topic, reply: {text: "Actors."}}
  - {match: again, turn: 2, reply: {text: "As I said: actors."}}
`)})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Close(ctx)
	first, err := rt.Do(ctx, troupe.Task{Prompt: "Name a topic."})
	if err != nil {
		fmt.Println(err)
		return
	}
	second, err := rt.Do(ctx, troupe.Task{Prompt: "Say it again.", Conversation: first.Conversation})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(second.FinalResponse)
	// Output:
	// As I said: actors.
}

// A task of the program's own has a typed input and output. Its worker journals it: the same id is the same run, also after a crash.
func ExampleNewTask() {
	type order struct {
		Item string `json:"item" desc:"What is ordered."`
	}
	type receipt struct{ Number int }
	place, err := troupe.NewTask(tools.Spec{
		Name: "place_order", Description: "Places an order.", Effect: messages.Effect_AT_MOST_ONCE, NoWorkspace: true,
	}, func(_ *tools.Context, o order) (receipt, error) {
		fmt.Println("ordered:", o.Item)
		return receipt{Number: 42}, nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	rt, err := troupe.New(ctx, troupe.Options{Tools: []troupe.Tool{place.Tool()}, Model: scripted("rules: [{reply: {text: unused}}]")})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Close(ctx)
	s, err := rt.Session(ctx, troupe.SessionOptions{Rules: []string{"place_order"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		r, err := place.Run(ctx, s.Worker, "order-7", order{Item: "tea"})
		fmt.Println(r.Number, err)
	}
	// Output:
	// ordered: tea
	// 42 <nil>
	// 42 <nil>
}

// A program that was killed does all of it again: what it did under an id is found, and not done a second time.
func ExampleWorker_RunOnce() {
	ctx := context.Background()
	rt, err := troupe.New(ctx, troupe.Options{Model: scripted("rules: [{match: '^greet', turn: 1, reply: {text: Hello.}}]")})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Close(ctx)
	for range 2 { // two processes, with a DataDir
		s, err := rt.Session(ctx, troupe.SessionOptions{ID: "morning"})
		if err != nil {
			fmt.Println(err)
			return
		}
		res, err := s.RunOnce(ctx, "greeting", "greet Ada")
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(s.ID(), res.Text)
	}
	// Output:
	// ses_morning Hello.
	// ses_morning Hello.
}
