package troupe_test

import (
	"context"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/tools"
)

// stepwise is a model that makes one call after the other, and notes what it was offered before each.
type stepwise struct {
	calls []*messages.ToolCall

	mu      sync.Mutex
	offered [][]string
}

func (m *stepwise) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	step := 0
	for _, said := range req.Prompt.Messages {
		switch said.Role {
		case messages.User:
			step = 0
		case messages.Assistant:
			step++
		}
	}
	var names []string
	for _, d := range req.Tools {
		names = append(names, d.Name)
	}
	m.mu.Lock()
	m.offered = append(m.offered, names)
	m.mu.Unlock()
	return say(func(*model.Request) (string, []*messages.ToolCall) {
		if step < len(m.calls) {
			return "", m.calls[step : step+1]
		}
		return "done", nil
	}).Stream(ctx, req)
}

func calls(names ...string) (out []*messages.ToolCall) {
	for i, c := range names {
		name, args, _ := strings.Cut(c, " ")
		out = append(out, &messages.ToolCall{Id: fmt.Sprint("call_", i), Name: name, Arguments: args})
	}
	return out
}

// answered answers whatever asks, and tells which tools did.
type answered struct {
	with troupe.Answer

	mu    sync.Mutex
	asked []*troupe.Approval
}

func (a *answered) approve(_ context.Context, v *troupe.Approval) troupe.Answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, v)
	return a.with
}

func (a *answered) tools() (out []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, v := range a.asked {
		out = append(out, v.GetTool())
	}
	return out
}

const (
	wantsAccess = `request_write_access {"reason":"forty files"}`
	writesB     = `write_file {"path":"b","content":"x"}`
)

// exampleOf is a call of a tool as its description has it.
func exampleOf(t *testing.T, spec *tools.Spec) string {
	t.Helper()
	own := map[string]string{
		"read_file": `{"path":"a"}`, "edit_file": `{"path":"a","edits":[{"old_string":"one","new_string":"two"}]}`, "write_file": `{"path":"b","content":"x"}`,
		"move_file": `{"source":"a","destination":"c"}`, "delete_file": `{"path":"a"}`, "create_directory": `{"path":"d"}`, "list_files": `{}`,
		"glob": `{"pattern":"*"}`, "grep": `{"pattern":"one"}`,
	}
	if args := own[spec.Name]; args != "" {
		return args
	}
	m := regexp.MustCompile("Example: `({.*?})`").FindStringSubmatch(spec.Description)
	if m == nil {
		t.Fatalf("%s has no example", spec.Name)
	}
	return m[1]
}

// TestFullRunsUnaskedAndRestrictedAsksAndOffersFewerTools has an agent call every built-in tool in a folder of each trust (acceptance row 20).
func TestFullRunsUnaskedAndRestrictedAsksAndOffersFewerTools(t *testing.T) {
	unasked := []string{"todo", "update_workspace"} // they touch nothing
	for _, tool := range tools.Builtin() {
		name := tool.Spec().Name
		for _, trust := range []troupe.Trust{troupe.Full, troupe.Restricted} {
			t.Run(name+" "+trust.String(), func(t *testing.T) {
				dir := folder(t, map[string]string{"a": "one\n"})
				m, who := &stepwise{calls: calls(`read_file {"path":"a"}`, name+" "+exampleOf(t, tool.Spec()))}, &answered{with: troupe.Answer{Decision: troupe.Approved}}
				rt, _ := runtimeOf(t, troupe.Options{Model: m, Approve: who.approve})
				s, err := rt.Session(t.Context(), troupe.SessionOptions{Dir: dir, Trust: trust})
				if err != nil {
					t.Fatal(err)
				}
				r := prompt(t, s, "go")
				if len(r.ToolCalls) != 2 || r.ToolCalls[0].GetStatus() != "ok" {
					t.Fatalf("%v", r.ToolCalls)
				}
				got, asked := r.ToolCalls[1], who.tools()
				offered := slices.Contains(m.offered[1], name)
				switch {
				case trust == troupe.Full:
					if len(asked) != 0 || got.GetStatus() == "denied" || offered == (name == tools.WriteAccessName) {
						t.Errorf("asked %v, offered %v: %v", asked, offered, got)
					}
				case !slices.Contains(tools.Restricted(), name):
					if len(asked) != 1 || got.GetStatus() != "denied" || offered || !strings.Contains(got.GetContent(), "not in the toolset") {
						t.Errorf("asked %v, offered %v: %v", asked, offered, got)
					}
				default:
					if want := !slices.Contains(unasked, name); (len(asked) == 2) != want || got.GetStatus() == "denied" || !offered {
						t.Errorf("asked %v, offered %v: %v", asked, offered, got)
					}
				}
			})
		}
	}
}

// trustOf is how far a session trusts its folder, as it is listed.
func trustOf(t *testing.T, rt *troupe.Runtime, session string) troupe.Trust {
	t.Helper()
	m, err := rt.Ask(t.Context(), &messages.Show{Id: session})
	if err != nil {
		t.Fatal(err)
	}
	return m.(*messages.Shown).GetSession().GetWorkspaces()[0].GetTrust()
}

func TestWriteAccessIsAPersonsToGive(t *testing.T) {
	for what, c := range map[string]struct {
		answer troupe.Answer
		rules  []string
		asked  []string
		status []string // of the calls
		trust  troupe.Trust
	}{
		"agreed":  {troupe.Answer{Decision: troupe.Approved, By: "ann"}, nil, []string{"request_write_access"}, []string{"ok", "ok", "ok"}, troupe.Full},
		"refused": {troupe.Answer{Decision: troupe.Rejected}, nil, []string{"request_write_access", "write_file"}, []string{"denied", "denied", "denied"}, troupe.Restricted},
		"a rule cannot give it": {
			troupe.Answer{Decision: troupe.Rejected},
			[]string{"request_write_access", "*"},
			[]string{"request_write_access"},
			[]string{"denied", "ok", "denied"}, // the last one is in no toolset
			troupe.Restricted,
		},
		"a rule can deny it": {troupe.Answer{Decision: troupe.Approved}, []string{"deny request_write_access"}, []string{"write_file"}, []string{"denied", "ok", "denied"}, troupe.Restricted},
	} {
		t.Run(what, func(t *testing.T) {
			m, who := &stepwise{calls: calls(wantsAccess, writesB, `delete_file {"path":"b"}`)}, &answered{with: c.answer}
			rt, _ := runtimeOf(t, troupe.Options{Model: m, Approve: who.approve})
			s, err := rt.Session(t.Context(), troupe.SessionOptions{Dir: t.TempDir(), Rules: c.rules})
			if err != nil {
				t.Fatal(err)
			}
			var status []string
			for _, call := range prompt(t, s, "go").ToolCalls {
				status = append(status, call.GetStatus())
			}
			if !slices.Equal(status, c.status) || !slices.Equal(who.tools(), c.asked) {
				t.Errorf("the calls %v, asked %v", status, who.tools())
			}
			raised := c.trust == troupe.Full
			if first, next := slices.Contains(m.offered[0], "exec"), slices.Contains(m.offered[1], "exec"); c.rules == nil && (first || next != raised) {
				t.Errorf("exec is offered: %v, then %v", first, next)
			}
			if got := trustOf(t, rt, s.ID()); got != c.trust {
				t.Errorf("listed as %v", got)
			}
		})
	}
}

func TestWhereNobodyCanBeAskedThereIsNoWriteAccess(t *testing.T) {
	rt, _ := runtimeOf(t, troupe.Options{Model: &stepwise{calls: calls(wantsAccess)}})
	s, err := rt.Session(t.Context(), troupe.SessionOptions{Dir: t.TempDir(), Rules: []string{"request_write_access"}})
	if err != nil {
		t.Fatal(err)
	}
	r := prompt(t, s, "go")
	if len(r.ToolCalls) != 1 || r.ToolCalls[0].GetStatus() != "denied" || trustOf(t, rt, s.ID()) != troupe.Restricted {
		t.Errorf("%v", r.ToolCalls)
	}
}

// TestWriteAccessStaysWithItsSessionAndGoesToNoCopy: it is journaled once, with who gave it, survives the process, and neither a fork nor
// an import has it, until it is given there.
func TestWriteAccessStaysWithItsSessionAndGoesToNoCopy(t *testing.T) {
	m, who := &stepwise{calls: calls(wantsAccess, wantsAccess)}, &answered{with: troupe.Answer{Decision: troupe.Approved, By: "ann"}}
	o := troupe.Options{Model: m, Approve: who.approve}
	a := newPlaceWith(t, o)
	s, err := a.Session(t.Context(), troupe.SessionOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if r := prompt(t, s, "go"); r.ToolCalls[1].GetStatus() != "ok" || len(who.tools()) != 1 {
		t.Errorf("asked again for what was given: %v, %v", who.tools(), r.ToolCalls)
	}
	var given []*messages.TrustChanged
	for _, r := range records(t, a.store, s.ID()) {
		if f, err := messages.SessionFactIn(r); err == nil {
			if f, ok := f.(*messages.TrustChanged); ok {
				given = append(given, f)
			}
		}
	}
	if len(given) != 1 || given[0].GetBy() != "ann" || given[0].GetApprovalId() != who.asked[0].GetApprovalId() {
		t.Errorf("journaled: %v", given)
	}
	file := export(t, a, s.ID())
	f, err := a.Fork(t.Context(), s.ID(), troupe.ForkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := trustOf(t, a.Runtime, f.ID()); got != troupe.Restricted {
		t.Errorf("the fork has it: %v", got)
	}
	a.again(t, o)
	if again, err := a.Open(t.Context(), s.ID()); err != nil || unaskedWrite(t, again) != "ok" || len(who.tools()) != 1 {
		t.Errorf("after a restart: %v, asked %v", err, who.tools())
	}

	b := newPlaceWith(t, o)
	if in := load(t, b, file, &messages.ImportSession{}); !in.GetRestricted() {
		t.Error("the import does not say that it trusts less")
	}
	if in := load(t, b, file, &messages.ImportSession{}); !in.GetIdentical() {
		t.Error("the same file is another one")
	}
	if got := trustOf(t, b.Runtime, s.ID()); got != troupe.Restricted {
		t.Errorf("the import has it: %v", got)
	}
	b.again(t, o)
	there, err := b.Open(t.Context(), s.ID())
	if err != nil {
		t.Fatal(err)
	}
	prompt(t, there, "go")
	b.again(t, o)
	if there, err = b.Open(t.Context(), s.ID()); err != nil || unaskedWrite(t, there) != "ok" || len(who.tools()) != 2 {
		t.Errorf("given there: %v, asked %v", err, who.tools())
	}
	if got := trustOf(t, b.Runtime, s.ID()); got != troupe.Full {
		t.Errorf("listed as %v", got)
	}
}

// unaskedWrite has a program write a file, and tells what became of it.
func unaskedWrite(t *testing.T, s *troupe.Session) string {
	t.Helper()
	ctx := t.Context()
	r, err := s.Call(ctx, "write_file", map[string]any{"path": fmt.Sprint(time.Now().UnixNano()), "content": "x"})
	if err != nil {
		t.Fatal(err)
	}
	return strings.ToLower(r.GetStatus().String())
}

func newPlaceWith(t *testing.T, o troupe.Options) *place {
	t.Helper()
	p := &place{store: memoryOf(t), data: t.TempDir()}
	t.Cleanup(func() { _ = p.store.Close() })
	o.Store, o.DataDir = p.store, p.data
	p.Runtime, _ = runtimeOf(t, o)
	return p
}

// again starts the next runtime on what the last one left.
func (p *place) again(t *testing.T, o troupe.Options) {
	t.Helper()
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.Store, o.DataDir = p.store, p.data
	p.Runtime, _ = runtimeOf(t, o)
}
