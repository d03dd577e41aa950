package chaos

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
)

// Fault is what the model server does to one request instead of answering it well.
type Fault string

// The faults. Each but the last is met once, by the first requests that come to its step.
const (
	RateLimit Fault = "429"  // with Retry-After
	Overload  Fault = "500"  //
	Cut       Fault = "cut"  // the stream ends in the middle, without a finish
	Drop      Fault = "drop" // the connection breaks in the middle
	KillHere  Fault = "kill" // the runtime is killed in the middle of the answer
	Gone      Fault = "404"  // the model is not there, and stays so; only where another one stands in (inLane)
)

// turn is one prompt and what the model answers to it.
type turn struct {
	n      int // from 1, over all sessions
	input  string
	text   string
	steps  []step // with calls; one more answers without
	final  string
	queued bool // sent while the turn before it is open
	cancel bool // cancelled while it runs, or so
	call   bool // a program's call of a tool instead of a prompt
	timer  timerUse
}

// timerUse is what a turn does with a timer beside its prompt.
type timerUse int

const (
	noTimer timerUse = iota
	setTimer
	setAndCancelTimer
)

// step is one answer with calls.
type step struct {
	calls  []toolCall
	faults []Fault
	slow   bool
}

// toolCall is one call as the script has it.
type toolCall struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// Names of what the runner makes.
const (
	guardedName = "guarded" // the Restricted workspace of every session: there calls ask, or are denied
	inputPrefix = "inp_chaos"
)

// The kinds of input.
const (
	kindTurn  = "turn"
	kindTimer = "timer"
	kindIdle  = "idle" // one that wants the session for itself
)

// known are rules that make the test tools known in a Restricted folder. They match nothing, so that its trust decides.
func known() []string {
	return []string{toolLook + "(none)", toolPut + "(none)", toolPost + "(none)", toolCharge + "(none)"}
}

// prompt begins the text of every input: the model server finds the turn by it.
func prompt(kind string, n int) string { return fmt.Sprintf("chaos %s %d: ", kind, n) }

// newTurn makes a turn from the seed and its number alone.
func newTurn(seed uint64, n int, mode Mode) turn {
	rng := rand.New(rand.NewPCG(seed, uint64(n))) //nolint:gosec // a run must repeat, not be unpredictable
	t := turn{
		n: n, input: fmt.Sprintf("%s_%d", inputPrefix, n), text: prompt(kindTurn, n) + "do what the script says.",
		final: fmt.Sprintf("Turn %d is done, and this answer is long enough to be cut in the middle of it.", n),
	}
	made := make(map[string]bool) // the files of the turn, by their workspace
	for s := range pick(rng, 1, 6, 2, 1) {
		st := step{slow: rng.IntN(12) == 0, faults: faults(rng, mode)}
		for i := range 1 + pick(rng, 30, 25, 18, 10, 7, 4, 3, 3) {
			st.calls = append(st.calls, newCall(rng, fmt.Sprintf("%d-%d-%d", n, s, i), i, made))
		}
		t.steps = append(t.steps, st)
	}
	t.queued = rng.IntN(6) == 0
	t.cancel = mode == Random && rng.IntN(16) == 0
	t.timer = timerUse(pick(rng, 8, 2, 1))
	t.call = rng.IntN(10) == 0
	return t
}

// pick draws an index by weights.
func pick(rng *rand.Rand, weights ...int) int {
	sum := 0
	for _, w := range weights {
		sum += w
	}
	at := rng.IntN(sum)
	for i, w := range weights {
		if at -= w; at < 0 {
			return i
		}
	}
	return 0
}

func faults(rng *rand.Rand, mode Mode) []Fault {
	all := []Fault{"", RateLimit, Overload, Cut, Drop, KillHere}
	if mode != Random {
		all = all[:5] // kills are at appends
	}
	weights := []int{70, 8, 6, 4, 4, 8}
	f := all[pick(rng, weights[:len(all)]...)]
	if f == "" {
		return nil
	}
	return []Fault{f}
}

// newCall draws one call. tag is its own. Ids of calls repeat from message to message, as providers do.
func newCall(rng *rand.Rand, tag string, i int, made map[string]bool) toolCall {
	c := toolCall{ID: fmt.Sprintf("call_%d", i)}
	args := map[string]any{"name": tag}
	kind, where := pick(rng, 20, 15, 12, 15, 14, 20, 2, 2), ""
	if kind == 5 { // where a person is asked, or nobody can be
		kind, where = pick(rng, 1, 2, 2, 4, 3), guardedName
		args["workspace_id"] = where
	}
	switch kind {
	case 0:
		c.Name = toolLook
	case 1:
		c.Name = toolPut
	case 2:
		c.Name = toolPost
	case 3:
		c.Name = toolCharge
	case 4:
		c.Name, args = fileCall(tag, where, made)
	case 6:
		c.Name = "nowhere"
	default:
		c.Name, args = toolCharge, map[string]any{"nme": tag}
	}
	c.Arguments = marshal(args)
	return c
}

// fileCall writes the turn's file in a workspace, or adds a line to it.
func fileCall(tag, where string, made map[string]bool) (string, map[string]any) {
	line := "mark-" + tag + ".\n"
	args := map[string]any{"path": fmt.Sprintf("turn-%d.txt", turnIn(tag))}
	if where != "" {
		args["workspace_id"] = where
	}
	if !made[where] {
		made[where] = true
		args["content"] = "head\n" + line + "tail\n"
		return "write_file", args
	}
	args["edits"] = []any{map[string]any{"old_string": "tail\n", "new_string": line + "tail\n"}}
	return "edit_file", args
}

func marshal(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil { // maps of strings: cannot happen
		return json.RawMessage("{}")
	}
	return b
}

// scriptOf is the script of all turns, as package script reads it: JSON is YAML.
func scriptOf(turns []turn) []byte {
	type reply struct {
		Text      string     `json:"text"`
		ToolCalls []toolCall `json:"tool_calls,omitempty"`
		ChunkSize int        `json:"chunk_size"`
		Pause     string     `json:"chunk_delay,omitempty"`
	}
	type rule struct {
		Match string  `json:"match"`
		Steps []reply `json:"steps"`
	}
	doc := struct {
		Name  string `json:"name"`
		Rules []rule `json:"rules"`
	}{Name: "chaos"}
	for _, t := range turns {
		r := rule{Match: "^" + prompt(kindTurn, t.n)}
		for i, s := range t.steps {
			a := reply{Text: fmt.Sprintf("Step %d of turn %d.", i+1, t.n), ToolCalls: s.calls, ChunkSize: 24}
			if s.slow {
				a.Pause = "2ms"
			}
			r.Steps = append(r.Steps, a)
		}
		r.Steps = append(r.Steps, reply{Text: t.final, ChunkSize: 16})
		doc.Rules = append(doc.Rules, r)
	}
	doc.Rules = append(doc.Rules, rule{Match: "^chaos (" + kindTimer + "|" + kindIdle + ") ", Steps: []reply{{Text: "Well noted.", ChunkSize: 16}}})
	return marshal(doc)
}
