package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// The test tools, one of each class.
const (
	toolLook   = "look"   // PURE
	toolPut    = "put"    // IDEMPOTENT
	toolPost   = "post"   // RECONCILABLE
	toolCharge = "charge" // AT_MOST_ONCE
)

// effector is what the test tools share: the log, and whom they tell how far they are.
type effector struct {
	log  *effectLog
	boot func() uint64
	// at hears of each phase after its line is on disk, and may kill the process there.
	at func(exec string, p Phase)
	// dispatch is the seq of the call's durable dispatch, 0 when there is none.
	dispatch func(exec string) uint64
}

type effectArgs struct {
	Name string `json:"name" desc:"What to log."`
}

func (x *effector) tools() ([]tools.Tool, error) {
	var out []tools.Tool
	for _, spec := range []tools.Spec{
		{Name: toolLook, Effect: messages.Effect_PURE},
		{Name: toolPut, Effect: messages.Effect_IDEMPOTENT},
		{Name: toolPost, Effect: messages.Effect_RECONCILABLE},
		{Name: toolCharge, Effect: messages.Effect_AT_MOST_ONCE},
	} {
		spec.Description = `Writes a line to the effect log. Example: {"name": "x"}`
		t, err := tools.Func(spec, func(tc *tools.Context, a effectArgs) (*tools.Result, error) { return x.run(tc, &spec, a.Name) })
		if err != nil {
			return nil, fmt.Errorf("make tool %s: %w", spec.Name, err)
		}
		if spec.Name == toolPost {
			t = &reconciled{t, x}
		}
		out = append(out, t)
	}
	return out, nil
}

// run has the effect once: an IDEMPOTENT tool looks first whether it happened under this exec id.
func (x *effector) run(tc *tools.Context, spec *tools.Spec, name string) (*tools.Result, error) {
	e := Effect{
		Exec: tc.ExecID, Tool: spec.Name, Name: name, Class: spec.Effect.String(), Session: sessionIn(tc), Boot: x.boot(), Dispatch: x.dispatch(tc.ExecID),
	}
	if err := x.line(e, Begun); err != nil {
		return nil, err
	}
	done := map[Phase]bool{}
	if spec.Effect == messages.Effect_IDEMPOTENT {
		var err error
		if done, err = x.log.phases(tc.ExecID); err != nil {
			return nil, err
		}
	}
	if !done[Happened] {
		if err := x.line(e, Happened); err != nil {
			return nil, err
		}
	}
	if err := x.line(e, Ended); err != nil {
		return nil, err
	}
	return did(spec.Name, tc.ExecID), nil
}

func (x *effector) line(e Effect, p Phase) error {
	e.Phase, e.AtMs = p, time.Now().UnixMilli()
	if err := x.log.write(&e); err != nil {
		return err
	}
	x.at(e.Exec, p)
	return nil
}

func did(tool, exec string) *tools.Result {
	return &tools.Result{Content: fmt.Sprintf("%s did it as %s", tool, exec)}
}

// sessionKey finds the session of a call among the program's values.
type sessionKey struct{}

func sessionIn(tc *tools.Context) string {
	s, _ := tc.Values[sessionKey{}].(string)
	return s
}

// reconciled is a tool that can be asked afterwards: the log tells what happened.
type reconciled struct {
	tools.Tool
	x *effector
}

// Reconcile implements tools.Reconciler. Between the first line and the second it cannot tell.
func (t *reconciled) Reconcile(tc *tools.Context, _ json.RawMessage, _ []*messages.FileHash) (*tools.Result, error) {
	p, err := t.x.log.phases(tc.ExecID)
	switch {
	case err != nil:
		return nil, err
	case p[Happened]:
		return did(t.Spec().Name, tc.ExecID), nil
	case p[Begun]:
		return nil, errors.New("it began, and whether it happened cannot be told")
	}
	return nil, tools.ErrNotDone
}
