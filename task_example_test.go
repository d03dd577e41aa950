package troupe_test

import (
	"context"
	"fmt"

	"github.com/troupe-dev/troupe"
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
