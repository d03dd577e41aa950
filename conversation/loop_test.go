package conversation_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
)

// tryOut lives through a turn whose steps are words, each one call `name:result` or `name!error`, with `|arguments` behind them or none. It returns what is said at which step, and
// at which step the turn is stuck (0: never), and why. What is said is in the facts: at the end the journal, folded again, decides the same.
func tryOut(t *testing.T, repeats int, words ...string) (said map[int]string, stuck int, why string) {
	t.Helper()
	lim := conversation.Limits{Repeats: repeats}
	j := newJournal()
	mustWrite(t, j, &messages.WorkerCreated{WorkerId: "wrk_1"}, &messages.InputAccepted{InputId: "i1"}, &messages.TurnStarted{TurnId: "t1", InputIds: []string{"i1"}})
	said = make(map[int]string)
	for i, word := range words {
		gen, exec := fmt.Sprint("gen_", i), fmt.Sprint("exe_", i)
		word, args, _ := strings.Cut(word, "|")
		name, result, ok := strings.Cut(word, ":")
		status := messages.ToolFinished_OK
		if !ok {
			name, result, _ = strings.Cut(word, "!")
			status = messages.ToolFinished_ERROR
		}
		mustWrite(t, j, &messages.GenerationStarted{GenId: gen},
			&messages.GenerationCompleted{GenId: gen, FinishReason: "tool_calls", ToolCalls: []*messages.ToolCall{{Id: "c", Name: name, Arguments: cmp.Or(args, "{}")}}},
			&messages.ToolPlanned{ExecId: exec, CallId: "c", Tool: name, Effect: messages.Effect_PURE})
		done := &messages.ToolFinished{ExecId: exec, CallId: "c", Tool: name, Status: status, Content: result}
		if _, text := j.s.Nudge([]proto.Message{done}, lim); text != "" {
			said[i+1], done.Nudge = text, text
		}
		goesOn := j.s.GoesOn(done, lim)
		mustWrite(t, j, done)
		end, is := j.s.Next(lim).(conversation.Complete)
		if is == goesOn {
			t.Errorf("step %d: ahead of its result the turn goes on: %v, and behind it: %v", i+1, goesOn, !is)
		}
		if is {
			again, err := foldLive(j.records)
			if err != nil {
				t.Fatal(err)
			}
			if next, _ := again.Next(lim).(conversation.Complete); next != end {
				t.Errorf("folded again the turn ends with %v instead of %v", next, end)
			}
			return said, i + 1, end.Reason
		}
	}
	return said, 0, ""
}

func TestCirclesAreSeenAndToldToTheModelBeforeTheTurnEnds(t *testing.T) {
	repeat := func(n int, words ...string) (all []string) {
		for range n {
			all = append(all, words...)
		}
		return all
	}
	polling := make([]string, 0, 30)
	for i := range 30 {
		polling = append(polling, fmt.Sprint("look:", i))
	}
	for name, c := range map[string]struct {
		words []string
		told  int // at which step
		stuck int
		why   string
	}{
		"the same call":            {repeat(9, "a:x"), 3, 5, "a was called 5 times in a row"},
		"the same in other words":  {repeat(3, `a:x|{"p":"f","n":1}`, `a:x|{ "n": 1, "p": "f" }`), 3, 5, "a was called 5 times in a row"},
		"ping-pong in other words": {repeat(5, `a:x|{"p":"f","n":1}`, "b:y", `a:x|{"n":1,"p":"f"}`, "b:y"), 6, 10, "a, b, 5 times in turn"},
		"other arguments":          {[]string{`a:x|{"n":1}`, `a:x|{"n":2}`, `a:x|{"n":3}`, `a:x|{"n":4}`, `a:x|{"n":5}`, `a:x|{"n":[6]}`, `a:x|{"n":`}, 0, 0, ""},
		"what is no JSON":          {[]string{`a:x|{"n":1}`, `a:x|{"n":1} or`, `a:x|{"n":1} so`, `a:x|{"n":1}{"n":2}`, `a:x|{"n":1}]`, `a:x|{"n":1} x`}, 0, 0, ""},
		"large numbers":            {[]string{`a:x|{"n":9007199254740993}`, `a:x|{"n":9007199254740992}`, `a:x|{"n":9007199254740993}`, `a:x|{"n":9007199254740994}`, `a:x|{"n":9007199254740995}`}, 0, 0, ""},
		"ping-pong":                {repeat(9, "a:x", "b:y"), 6, 10, "a, b, 5 times in turn"},
		"three in turn":            {repeat(9, "a:x", "b:y", "c:z"), 9, 15, "goes in circles"},
		"failures of all kinds":    {[]string{"a!1", "b!2", "a!3", "c!4", "a!5", "a!6", "b!7", "a!8", "c!9", "a!10", "a!11"}, 5, 10, "the last 10 steps have all failed"},
		"a success in between":     {[]string{"a!1", "b!2", "a!3", "c!4", "a:5", "a!6", "b!7", "a!8", "c!9", "a:10", "a!11"}, 0, 0, ""},
		"polling":                  {polling, 0, 0, ""},
		"polling among others":     {[]string{"a:1", "b:y", "a:2", "b:y", "a:3", "b:y", "a:4", "b:y", "a:5", "b:y", "a:6", "b:y"}, 0, 0, ""},
		"twice is no circle":       {[]string{"a:x", "a:x", "b:y", "a:x", "a:x", "c:z"}, 0, 0, ""},
		"it heeds what was said":   {[]string{"a:x", "a:x", "a:x", "b:y", "c:z", "d:w"}, 3, 0, ""},
	} {
		said, stuck, why := tryOut(t, 5, c.words...)
		if c.told == 0 && len(said) > 0 || c.told > 0 && (len(said) != 1 || said[c.told] == "") {
			t.Errorf("%s: told %v, want at step %d", name, said, c.told)
		}
		if stuck != c.stuck || !strings.Contains(why, c.why) {
			t.Errorf("%s: stuck at step %d: %q", name, stuck, why)
		}
	}
	if said, stuck, _ := tryOut(t, 0, repeat(40, "a:x")...); len(said) > 0 || stuck > 0 {
		t.Errorf("without a limit: %v, stuck at %d", said, stuck)
	}
}
