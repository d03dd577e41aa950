package troupetest_test

import (
	"context"
	"fmt"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/model/script"
	"github.com/troupe-dev/troupe/troupetest"
)

// A transcript says what is asked and what should come; what came instead is shown as a difference.
func ExampleTranscript_Play() {
	s, err := script.Parse("greeter", []byte("name: greeter\nrules:\n  - {match: '^hello (.*)', reply: {text: 'Hello, ${1}!'}}\n"))
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	rt, err := troupe.New(ctx, troupe.Options{Model: s.Model()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Close(ctx)
	t, err := troupetest.ParseTranscript("greets.txt", "> hello Ann\n< Good day, Ann!\nend done\n")
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := t.Play(ctx, rt, troupetest.Stage{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(p.Diff())
	// Output:
	// greets.txt:1: hello Ann
	// - < Good day, Ann!
	// + < Hello, Ann!
	//   end done
}

// Time passes when the test says so.
func ExampleClock() {
	clock := troupetest.NewClock(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC))
	rang := make(chan string, 1)
	clock.After(time.Hour, func() { rang <- "an hour has passed" })
	clock.Advance(59 * time.Minute)
	clock.Advance(time.Minute)
	fmt.Println(<-rang)
	fmt.Println(clock.Now().Format(time.TimeOnly))
	// Output:
	// an hour has passed
	// 10:00:00
}

func ExampleDiff() {
	fmt.Print(troupetest.Diff([]string{"one", "two"}, []string{"one", "three"}))
	// Output:
	//   one
	// - two
	// + three
}

// A recorded model shows what an agent asked it.
func ExampleRecord() {
	s, err := script.Parse("greeter", []byte("rules: [{reply: {text: Hello.}}]"))
	if err != nil {
		fmt.Println(err)
		return
	}
	m := troupetest.Record(s.Model())
	ctx := context.Background()
	rt, err := troupe.New(ctx, troupe.Options{Model: m, Agents: []troupe.Agent{{Name: "default", System: "You greet.", Tools: []string{"read_file"}}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Close(ctx)
	if _, err := rt.Do(ctx, troupe.Task{Prompt: "Greet Ann."}); err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range m.Requests() {
		fmt.Println(r.Prompt.Messages[0].Text, r.Tools[0].Name)
	}
	// Output:
	// Greet Ann. read_file
}
