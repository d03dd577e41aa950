package actors_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/tools"
)

// floor sees what works in each folder, and who.
type floor struct {
	mu      sync.Mutex
	within  map[string]string // folder -> exec id
	clashes []string
	order   map[string][]string // folder -> exec ids, as they began
}

// touch is an effect that takes a moment.
func (f *floor) touch(t testing.TB) tools.Tool {
	t.Helper()
	type args struct {
		Note      string `json:"note,omitempty" desc:"Nothing."`
		Workspace string `json:"workspace_id,omitempty" desc:"Where."`
	}
	spec := tools.Spec{Name: "touch", Description: "Works here. Example: `{}`", Effect: atMostOnce}
	made, err := tools.Func(spec, func(tc *tools.Context, _ args) (*tools.Result, error) {
		dir := tc.WorkspaceInfo.GetWorkingDirectory()
		f.mu.Lock()
		if other := f.within[dir]; other != "" {
			f.clashes = append(f.clashes, fmt.Sprintf("%s began in %s while %s ran", tc.ExecID, dir, other))
		}
		f.within[dir] = tc.ExecID
		f.order[dir] = append(f.order[dir], tc.ExecID)
		f.mu.Unlock()
		for range 20 {
			runtime.Gosched()
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.within[dir] == tc.ExecID {
			f.within[dir] = ""
		}
		return &tools.Result{Content: "ok"}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// TestManyFamiliesOnTheSameFoldersNeverDeadlockAndStayApart lets parents of several sessions, with children, work in folders that
// they share: every turn ends, no two effects in a folder overlap, and by the journals the leases of strangers
// are disjoint.
func TestManyFamiliesOnTheSameFoldersNeverDeadlockAndStayApart(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := &floor{within: make(map[string]string), order: make(map[string][]string)}
		h := actortest.New(t, actortest.Options{Tools: []tools.Tool{f.touch(t)}, Limits: actors.Limits{Children: rapid.IntRange(1, 3).Draw(rt, "width")}, Model: plans()})
		defer h.Stop()
		dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
		var turns []<-chan actortest.Answer[*messages.TurnResult]
		var sessions []string
		for i := range rapid.IntRange(2, 4).Draw(rt, "sessions") {
			var spaces []*messages.WorkspaceSpec
			var names []string
			for j, d := range dirs {
				if len(spaces) == 0 && j == len(dirs)-1 || rapid.Bool().Draw(rt, "attached") {
					names = append(names, fmt.Sprint("d", j))
					spaces = append(spaces, &messages.WorkspaceSpec{Uri: "local:" + d, Name: names[len(names)-1], Trust: messages.Trust_FULL})
				}
			}
			plan := drawPlan(rt, names, 3, true)
			s, _ := h.Create(&messages.CreateSession{Workspaces: spaces})
			sessions = append(sessions, s)
			turns = append(turns, actortest.Later[*messages.TurnResult](h, s, &messages.RunInput{Input: &messages.SubmitInput{InputId: fmt.Sprint("inp_", i), Parts: actortest.Text(plan)}}))
		}
		for _, turn := range turns {
			if r := actortest.Wait(t, "a turn", turn); r.Err != nil || r.Reply.GetOutcome() != messages.TurnCompleted_DONE {
				rt.Fatalf("a turn ended as %v (%v)", r.Reply, r.Err)
			}
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, c := range f.clashes {
			rt.Error(c)
		}
		f.strangersStayApart(rt, h.Store, sessions)
	})
}

// drawPlan draws what somebody does: touches in workspaces ("t NAME"), and tasks for children ("c NAME PLAN").
func drawPlan(rt *rapid.T, names []string, most int, parent bool) string {
	var steps []string
	for range rapid.IntRange(1, most).Draw(rt, "steps") {
		where := rapid.SampledFrom(names).Draw(rt, "where")
		if parent && rapid.Bool().Draw(rt, "delegates") {
			in := names
			if rapid.Bool().Draw(rt, "confined") {
				in = []string{where}
			} else {
				where = "*"
			}
			steps = append(steps, "c "+where+" "+strings.ReplaceAll(drawPlan(rt, in, 2, false), ";", ","))
			continue
		}
		steps = append(steps, "t "+where)
	}
	return strings.Join(steps, ";")
}

// plans is a model that makes the calls of its plan, all at once.
func plans() actortest.Model {
	return func(_ context.Context, r *model.Request) actortest.Reply {
		if actortest.Results(r) != nil {
			return actortest.Reply{Text: "done"}
		}
		var calls []*messages.ToolCall
		for i, step := range strings.FieldsFunc(actortest.Asked(r), func(c rune) bool { return c == ';' || c == ',' && isChild(r) }) {
			what, rest, _ := strings.Cut(step, " ")
			where, task, _ := strings.Cut(rest, " ")
			switch {
			case what == "t":
				calls = append(calls, actortest.Call(fmt.Sprint(i), "touch", fmt.Sprintf(`{"workspace_id":%q}`, where)))
			case where == "*":
				calls = append(calls, delegate(fmt.Sprint(i), task))
			default:
				calls = append(calls, delegate(fmt.Sprint(i), task, fmt.Sprintf(`,"workspace_id":%q`, where)))
			}
		}
		return actortest.Reply{Calls: calls}
	}
}

// strangersStayApart holds what ran to what the journals say: a token is of one session, no two workers have the same lease, and in
// each folder the tokens of the effects only grow, so that nobody comes back into what a stranger has taken since.
func (f *floor) strangersStayApart(rt *rapid.T, store persistence.Store, sessions []string) {
	owner, given, under := make(map[string]string), make(map[string]string), make(map[string]uint64)
	for _, s := range sessions {
		err := store.ReadSession(context.Background(), s, 0, func(e persistence.Entry) error {
			fact, err := messages.WorkerFactIn(e.Record)
			if err != nil || !strings.HasPrefix(e.Stream, "wrk/") {
				return nil //nolint:nilerr // a record of the session's own
			}
			switch x := fact.(type) {
			case *messages.ToolDispatched:
				under[x.GetExecId()] = x.GetLease().GetToken()
			case *messages.TurnStarted:
				for _, l := range x.GetLeases() {
					token := fmt.Sprint(l.GetWorkspace(), " ", l.GetToken())
					one := fmt.Sprint(token, " ", l.GetChild())
					if owner[token] != "" && owner[token] != s || given[one] != "" {
						rt.Errorf("lease %s of %s in session %s: session %s and %s have it", one, e.Stream, s, owner[token], given[one])
					}
					owner[token], given[one] = s, e.Stream
				}
			}
			return nil
		})
		if err != nil {
			rt.Fatal(err)
		}
	}
	for dir, execs := range f.order {
		var last uint64
		for _, exec := range execs {
			if under[exec] == 0 || under[exec] < last {
				rt.Errorf("%s ran in %s under token %d after %d", exec, dir, under[exec], last)
			}
			last = under[exec]
		}
	}
}

// TestAChildComesPastTheQueueOfStrangers: one who waits for the parent waits for its child, too.
func TestAChildComesPastTheQueueOfStrangers(t *testing.T) {
	h := actortest.New(t, actortest.Options{})
	uri, ws := open(h, "/kin/one")
	parent, child, sister, stranger := newProbe(h), newProbe(h), newProbe(h), newProbe(h)
	ask := func(p *probe, holder, of string, request uint64) {
		p.send(ws, &messages.AcquireLease{Workspace: uri, Holder: holder, Parent: of, Request: request})
	}
	release := func(p *probe, holder string, token uint64) {
		p.send(ws, &messages.ReleaseLease{Workspace: uri, Holder: holder, Token: token})
	}
	ask(parent, "wrk_p", "", 1)
	p := parent.granted(t)
	ask(stranger, "wrk_s", "", 2)
	actortest.Wait(t, "the queue", stranger.seen)
	ask(child, "wrk_c", "wrk_p", 3)
	c := child.granted(t)
	ask(sister, "wrk_d", "wrk_p", 4)
	d := sister.granted(t)
	if c.GetToken() != p.GetToken() || d.GetToken() != p.GetToken() || c.GetChild() == 0 || c.GetChild() == d.GetChild() {
		t.Fatalf("leases %v, %v, %v", p, c, d)
	}
	begin := func(by *probe, g *messages.LeaseGranted, exec string) {
		by.send(ws, &messages.EffectBegun{Workspace: uri, Token: g.GetToken(), Child: g.GetChild(), ExecId: exec})
	}
	begin(child, c, "exe_c")
	actortest.Wait(t, "the child's effect", child.seen)
	begin(sister, d, "exe_d")
	begin(parent, p, "exe_p")
	if v := look(t, h, ws); v.GetEffects() != 1 || len(sister.seen)+len(parent.seen) != 0 {
		t.Errorf("beside the child's effect: %v", v)
	}
	child.send(ws, &messages.EffectBegun{Workspace: uri, Token: c.GetToken(), Child: c.GetChild(), ExecId: "job_c"}) // that it leaves running
	actortest.Wait(t, "the child's job", child.seen)
	child.send(ws, &messages.EffectEnded{Workspace: uri, Token: c.GetToken(), ExecId: "exe_c"})
	if m, ok := actortest.Wait(t, "the sister's turn", sister.seen).(*messages.EffectAllowed); !ok || len(parent.seen) != 0 {
		t.Errorf("the sister is told %v", m)
	}
	release(parent, "wrk_p", p.GetToken()) // its effect waits no longer
	if m, ok := actortest.Wait(t, "the parent's answer", parent.seen).(*messages.Failure); !ok {
		t.Errorf("the parent is told %v", m)
	}
	ask(parent, "wrk_p", "", 5)
	actortest.Wait(t, "the queue", parent.seen)
	child.send(ws, &messages.EffectEnded{Workspace: uri, Token: c.GetToken(), ExecId: "job_c"})
	sister.send(ws, &messages.EffectEnded{Workspace: uri, Token: d.GetToken(), ExecId: "exe_d"})
	release(child, "wrk_c", c.GetToken())
	if len(stranger.seen) != 0 {
		t.Error("a stranger comes in while a child works")
	}
	release(sister, "wrk_d", d.GetToken())
	if s := stranger.granted(t); s.GetToken() <= p.GetToken() {
		t.Errorf("the stranger's token %d after %d", s.GetToken(), p.GetToken())
	}
	release(stranger, "wrk_s", 0)
}
