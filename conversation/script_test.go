package conversation_test

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
)

var update = flag.Bool("update", false, "write what scripts print, and golden records that are missing")

// TestScripts runs testdata/*.txt. A line is a verb and its arguments; lines that begin with `|`
// are what the verb above them prints. Most verbs write one fact; calls go by their place in
// the newest answer. The facts are in script_facts_test.go, and these look at the state:
//
//	next [steps=N] [repeats=N] [window=TOKENS]   what may come next
//	render           the prompt that would be sent
//	history          the finished exchanges
//	recover          what an activation would decide about the open calls
//	known            the files that the conversation has seen
//	staged, usage    inputs without a turn; tokens so far
//	calls            the newest answer's calls, as they run
//	who              agent and model of later generations; the model of the newest answer
//	crash            fold all records anew, under the next epoch
//	expect-illegal VERB...   the verb's fact has to be refused, and nothing changes
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 12 {
		t.Fatalf("%d scripts, %v", len(files), err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) { runScript(t, f) })
	}
}

func runScript(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	sc := &script{journal: newJournal()}
	for i, line := range strings.SplitAfter(string(text), "\n") {
		if strings.HasPrefix(line, "|") {
			continue
		}
		out.WriteString(line)
		words, err := split(strings.TrimSpace(line))
		if err == nil && len(words) > 0 {
			err = sc.run(words, &out)
		}
		if err == nil {
			err = consistent(sc.s)
		}
		if err != nil {
			t.Fatalf("%s:%d: %s: %v", file, i+1, strings.TrimSpace(line), err)
		}
	}
	if out.String() == string(text) {
		return
	}
	if *update {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s prints something else (go test -run Scripts -update writes it):\n%s", file, out.String())
}

type script struct {
	*journal
	copied []*messages.Turn
	gens   int
}

func (sc *script) run(words []string, out *strings.Builder) error {
	args := words[1:]
	switch words[0] {
	case "copy":
		return sc.copy(args)
	case "crash":
		return sc.crash()
	case "expect-illegal":
		f, err := sc.fact(args)
		if err != nil {
			return err
		}
		if err := sc.write(f); !errors.Is(err, conversation.ErrIllegal) {
			return fmt.Errorf("want ErrIllegal, got: %w", cmp.Or(err, errors.New("no error")))
		}
		return nil
	case "next", "render", "history", "recover", "known", "staged", "usage", "who", "calls":
		for _, l := range sc.show(words) {
			out.WriteString("| " + l + "\n")
		}
		return nil
	}
	if words[0] == "dispatch" && len(args) > 1 {
		for _, a := range args {
			if err := sc.run([]string{"dispatch", a}, out); err != nil {
				return err
			}
		}
		return nil
	}
	f, err := sc.fact(words)
	if err != nil {
		return err
	}
	return sc.write(f)
}

func (sc *script) crash() error {
	s, err := fold(sc.records)
	if err != nil {
		return err
	}
	if !proto.Equal(s.History(), sc.s.History()) {
		return errors.New("the history changed by folding it anew")
	}
	sc.s = s
	sc.epoch++
	return nil
}

// show prints what a looking verb sees, one line each.
func (sc *script) show(words []string) []string {
	var out []string
	switch words[0] {
	case "next":
		steps, _ := strconv.Atoi(options(words[1:])["steps"])
		repeats, _ := strconv.Atoi(options(words[1:])["repeats"])
		lim := conversation.Limits{Steps: steps, Repeats: repeats}
		if window, err := strconv.Atoi(options(words[1:])["window"]); err == nil {
			lim.Fits = func(tokens int) bool { return tokens <= window }
		}
		return []string{stepText(sc.s.Next(lim))}
	case "render":
		r, ok := sc.s.Ready()
		if !ok {
			return []string{"not ready"}
		}
		for _, m := range r.Render("").Messages {
			out = append(out, messageText(string(m.Role), m.Text, m.ToolCallID, m.ToolCalls))
		}
	case "history":
		for _, t := range sc.s.History().GetTurns() {
			out = append(out, "turn "+t.GetOutcome())
			for _, m := range t.GetMessages() {
				out = append(out, "  "+messageText(m.GetRole(), m.GetContent(), m.GetToolCallId(), m.GetToolCalls()))
			}
		}
	case "recover":
		for _, d := range sc.s.Recover() {
			c := sc.s.Turn().Call(d.GetExecId())
			out = append(out, fmt.Sprintf("%d %s %s", c.Plan.GetOrdinal(), c.Name, d.GetAction()))
		}
	case "known":
		for _, f := range sc.s.KnownFiles("home") {
			out = append(out, f.GetPath()+" "+f.GetSha256())
		}
	case "staged":
		for _, in := range sc.s.Staged() {
			out = append(out, in.GetInputId())
		}
	case "calls":
		for _, c := range sc.s.Turn().Calls {
			out = append(out, fmt.Sprintf("%d %s(%s) %s", c.Plan.GetOrdinal(), c.Name, c.Arguments, c.Status()))
		}
	case "who":
		made := ""
		if last := sc.s.Last(); last != nil {
			made = ", answered by " + last.Model
		}
		out = append(out, sc.s.Agent()+" on "+sc.s.Model()+made)
	case "usage":
		u := sc.s.Usage()
		out = append(out, fmt.Sprintf("in %d out %d", u.GetInputTokens(), u.GetOutputTokens()))
	}
	if len(out) == 0 {
		out = []string{"nothing"}
	}
	return out
}

func stepText(n conversation.Step) string {
	switch n := n.(type) {
	case conversation.Rest:
		return "rest"
	case conversation.Begin:
		return "begin " + n.Input.GetInputId()
	case conversation.Join:
		s := "join"
		for _, in := range n.Inputs {
			s += " " + in.GetInputId()
		}
		return s
	case conversation.Generate:
		return fmt.Sprintf("generate step %d attempt %d", n.Number, n.Attempt)
	case conversation.Plan:
		s := "plan"
		for i, c := range n.Calls {
			s += fmt.Sprintf(" %d %s", n.From+i, c.GetName())
		}
		return s
	case conversation.Settle:
		s := "settle"
		for _, c := range n.Calls {
			s += fmt.Sprintf(" %d %s", c.Plan.GetOrdinal(), c.Status())
		}
		return s
	case conversation.Complete:
		s := "complete " + conversation.OutcomeName(n.Outcome)
		if n.Code != "" {
			s += " " + n.Code
		}
		if n.Reason != "" {
			s += ": " + n.Reason
		}
		return s
	}
	return fmt.Sprintf("unknown step %T", n)
}

func messageText(role, text, callID string, calls []*messages.ToolCall) string {
	s := role
	if callID != "" {
		s += " " + callID
	}
	s += fmt.Sprintf(" %q", text)
	for _, c := range calls {
		s += fmt.Sprintf(" %s#%s(%s)", c.GetName(), c.GetId(), c.GetArguments())
	}
	return s
}

// split cuts a line at spaces outside of quotes and parentheses. `#` begins a comment.
func split(line string) ([]string, error) {
	var out []string
	depth, quoted, start := 0, false, -1
	for i := 0; i <= len(line); i++ {
		end := i == len(line)
		switch {
		case !end && line[i] == '"' && line[max(i-1, 0)] != '\\':
			quoted = !quoted
		case !end && !quoted && line[i] == '(':
			depth++
		case !end && !quoted && line[i] == ')':
			depth--
		case !end && line[i] == '#' && start < 0:
			return out, nil
		}
		switch blank := end || line[i] == ' ' && !quoted && depth == 0; {
		case !blank && start < 0:
			start = i
		case blank && start >= 0:
			out = append(out, line[start:i])
			start = -1
		}
	}
	if quoted || depth != 0 {
		return nil, errors.New("unbalanced quotes or parentheses")
	}
	return out, nil
}

// options reads the words of the form name=value.
func options(words []string) map[string]string {
	m := map[string]string{}
	for _, w := range words {
		if k, v, ok := strings.Cut(w, "="); ok && !strings.ContainsAny(k, "\"(") {
			m[k] = v
		}
	}
	return m
}
