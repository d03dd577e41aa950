package troupe

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/pipeline"
	"github.com/troupe-dev/troupe/workspace"
)

// RunView is what a pipeline run has come to.
type RunView = messages.RunView

// RunOptions say how a pipeline is run. The zero value works.
type RunOptions struct {
	ID      string            // the same id again, also in a later process, is the same run, of the same pipeline: see SessionOptions.ID; "" is a new one
	Inputs  map[string]any    // by name; of type file: the text
	Dir     string            // folder that it works in; "": as the pipeline says, from the working directory; none without workspace.root
	Trust   Trust             // in the folder; 0: as the pipeline says
	Model   string            // instead of the defaults' model
	Env     map[string]string // of these, those that the pipeline lists under env are seen
	Rules   []string          // of what needs no question
	NoInput bool              // nobody answers: questions end as on_timeout says
}

// Run is one run of a pipeline.
type Run struct {
	rt          *Runtime
	id, session string
}

// RunPipeline starts a run, or opens the one of this id; it returns once that is durable. Nothing of the files is read again later.
func (rt *Runtime) RunPipeline(ctx context.Context, p *pipeline.Plan, o RunOptions) (*Run, error) {
	m, err := CreateRun(p, o)
	if err != nil {
		return nil, err
	}
	v, err := send[*messages.SessionView](ctx, rt, m)
	switch {
	case o.ID != "" && isCode(err, messages.CodeAlreadyExists):
		return rt.same(ctx, m.GetRun())
	case err != nil:
		return nil, err
	}
	return &Run{rt, m.GetRun().GetRunId(), v.GetId()}, nil
}

// same finds a run that was started before, and refuses one of another pipeline.
func (rt *Runtime) same(ctx context.Context, asked *messages.RunStarted) (*Run, error) {
	r, err := rt.OpenRun(ctx, asked.GetRunId())
	switch {
	case isCode(err, messages.CodeNotFound):
		return nil, messages.Fail(messages.CodeConflict, fmt.Sprintf("run %s cannot begin: a session of this id is there, and was made for no run", asked.GetRunId()), "give another id")
	case err != nil:
		return nil, err
	}
	v, err := r.Show(ctx)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(v.GetPlanHash(), asked.GetPlanHash()) {
		return nil, messages.Fail(messages.CodeConflict, fmt.Sprintf("run %s is one of another pipeline, or of this one before it was changed", r.id), "give another id, or Resume the run with what has changed")
	}
	return r, nil
}

// CreateRun is the command that starts a run, for those who talk to a runtime by messages.
func CreateRun(p *pipeline.Plan, o RunOptions) (*messages.CreateSession, error) {
	inputs, err := p.Root.Fill(o.Inputs, nil)
	if err != nil {
		return nil, err
	}
	env := make(map[string]string)
	for _, name := range p.Vars() {
		if v, ok := o.Env[name]; ok {
			env[name] = v
		}
	}
	inputsJSON, err := json.Marshal(inputs)
	if err != nil {
		return nil, fmt.Errorf("encode the inputs: %w", err)
	}
	envJSON, err := json.Marshal(env)
	if err != nil {
		return nil, fmt.Errorf("encode the environment: %w", err)
	}
	id, err := named(messages.RunPrefix, o.ID)
	if err != nil {
		return nil, fmt.Errorf("start a run: %w", err)
	}
	id = cmp.Or(id, messages.NewID(messages.RunPrefix))
	session := messages.SessionOf(id)
	run := &messages.RunStarted{
		RunId: id, PlanHash: p.Hash, Sources: p.Sources, Name: p.Root.Name, InputsJson: string(inputsJSON), EnvJson: string(envJSON),
		Model: o.Model, By: "program",
	}
	m := &messages.CreateSession{SessionId: session, Rules: o.Rules, NoInput: o.NoInput, Ask: !o.NoInput, Run: run, Model: o.Model}
	if b := p.Root.Budget; b != nil {
		m.Budget = b.Message()
	}
	return m, runFolder(m, p, o, run)
}

// runFolder gives the run its folder.
func runFolder(m *messages.CreateSession, p *pipeline.Plan, o RunOptions, run *messages.RunStarted) error {
	root, err := p.Folder(run)
	if err != nil {
		return fmt.Errorf("workspace.root: %w", err)
	}
	dir := o.Dir
	switch {
	case root == "":
	case filepath.IsAbs(root):
		dir = root
	default:
		dir = filepath.Join(dir, root)
	}
	if dir == "" {
		return nil
	}
	addr, _, err := workspace.Local(dir)
	if err != nil {
		return fmt.Errorf("open folder %s: %w", dir, err)
	}
	trust := cmp.Or(o.Trust, map[string]Trust{"full": Full, "restricted": Restricted}[p.Root.Workspace.Trust])
	if p.Root.Workspace.Trust == "restricted" {
		trust = Restricted // a file takes trust away, and never gives more than it was told
	}
	if o.Trust != Full && p.Root.Workspace.Trust == "full" {
		trust = cmp.Or(o.Trust, Restricted)
	}
	m.Workspaces = []*messages.WorkspaceSpec{{Uri: addr.Canonical, Trust: trust, Primary: true}}
	run.Root = dir
	return nil
}

// Runs lists the runs, the newest first. It wakes nobody.
func (rt *Runtime) Runs(ctx context.Context) ([]*RunView, error) {
	all, err := rt.listRuns(ctx, &messages.ListRuns{})
	return all.GetRuns(), err
}

// listRuns reads the listing: of one run its entry alone.
func (rt *Runtime) listRuns(ctx context.Context, m *messages.ListRuns) (*messages.Runs, error) {
	out := &messages.Runs{}
	err := rt.svc.Store.Index(ctx, actors.RunKey(m.GetRunId()), func(key string, value []byte) error {
		if m.GetRunId() != "" && key != actors.RunKey(m.GetRunId()) {
			return nil // whose id begins so
		}
		v := &messages.RunView{}
		if err := proto.Unmarshal(value, v); err != nil {
			return fmt.Errorf("decode listing entry %s: %w", key, err)
		}
		out.Runs = append(out.Runs, v)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	slices.SortStableFunc(out.Runs, func(a, b *messages.RunView) int { return cmp.Compare(b.GetStartedAtUnixMs(), a.GetStartedAtUnixMs()) })
	return out, nil
}

// OpenRun finds a run. One that was interrupted goes on.
func (rt *Runtime) OpenRun(ctx context.Context, id string) (*Run, error) {
	session, err := rt.sessionOfRun(ctx, id)
	if err != nil {
		return nil, err
	}
	return &Run{rt, id, session}, nil
}

func (rt *Runtime) sessionOfRun(ctx context.Context, id string) (string, error) {
	session := ""
	err := rt.svc.Store.Index(ctx, actors.RunKey(id), func(key string, value []byte) error {
		v := &messages.RunView{}
		if key == actors.RunKey(id) {
			session = v.GetSessionId()
			if err := proto.Unmarshal(value, v); err != nil {
				return fmt.Errorf("decode listing entry %s: %w", key, err)
			}
			session = v.GetSessionId()
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("find run %s: %w", id, err)
	}
	if session == "" {
		return "", messages.Fail(messages.CodeNotFound, fmt.Sprintf("there is no run %q", id), "see `troupe ls runs`")
	}
	return session, nil
}

// askRun finds the session of a run, and passes a command on.
func (rt *Runtime) askRun(ctx context.Context, id string, wrap *messages.ToSession) (proto.Message, error) {
	session, err := rt.sessionOfRun(ctx, id)
	if err != nil {
		return nil, err
	}
	wrap.SessionId = session
	return send[proto.Message](ctx, rt, wrap)
}

func (rt *Runtime) onRun(ctx context.Context, m proto.Message) (proto.Message, error) {
	switch x := m.(type) {
	case *messages.ShowRun:
		return rt.askRun(ctx, x.GetRunId(), &messages.ToSession{Command: &messages.ToSession_ShowRun{ShowRun: x}})
	case *messages.ResumeRun:
		return rt.askRun(ctx, x.GetRunId(), &messages.ToSession{Command: &messages.ToSession_ResumeRun{ResumeRun: x}})
	case *messages.CancelRun:
		return rt.askRun(ctx, x.GetRunId(), &messages.ToSession{Command: &messages.ToSession_CancelRun{CancelRun: x}})
	case *messages.AwaitRun:
		return rt.askRun(ctx, x.GetRunId(), &messages.ToSession{Command: &messages.ToSession_AwaitRun{AwaitRun: x}})
	}
	return nil, errors.New("not about a run")
}

func (r *Run) ask(ctx context.Context, m proto.Message) (*RunView, error) {
	reply, err := r.rt.onRun(ctx, m)
	if err != nil {
		return nil, err
	}
	v, ok := reply.(*messages.RunView)
	if !ok {
		return nil, fmt.Errorf("ask run %s: unexpected answer %T", r.id, reply)
	}
	return v, nil
}

// ID is the run's id: OpenRun finds it again.
func (r *Run) ID() string { return r.id }

// Session is the id of the session whose workers do the run's work.
func (r *Run) Session() string { return r.session }

// Show says what the run has come to, step by step.
func (r *Run) Show(ctx context.Context) (*RunView, error) {
	return r.ask(ctx, &messages.ShowRun{RunId: r.id})
}

// Changed waits until the run has changed after a revision, or is over.
func (r *Run) Changed(ctx context.Context, after uint64) (*RunView, error) {
	return r.ask(ctx, &messages.AwaitRun{RunId: r.id, After: after, Changes: true})
}

// Wait returns when the run is over.
func (r *Run) Wait(ctx context.Context) (*RunView, error) {
	return r.ask(ctx, &messages.AwaitRun{RunId: r.id})
}

// Cancel ends the run and what it has under way.
func (r *Run) Cancel(ctx context.Context, reason string) (*RunView, error) {
	return r.ask(ctx, &messages.CancelRun{RunId: r.id, By: "program", Reason: reason})
}

// Resume lets a run that failed or was cancelled try again what has not succeeded. p is the pipeline as it is now, nil for as it was; one
// that differs is refused unless accept says that it counts.
func (r *Run) Resume(ctx context.Context, p *pipeline.Plan, accept bool) (*RunView, error) {
	m := &messages.ResumeRun{RunId: r.id, By: "program", AcceptChanges: accept}
	if p != nil {
		m.PlanHash, m.Sources = p.Hash, p.Sources
	}
	return r.ask(ctx, m)
}

// Outputs are what a run gave back; an error when it did not succeed.
func Outputs(v *RunView) (map[string]any, error) {
	if v.GetState() != pipeline.Succeeded {
		return nil, fmt.Errorf("run %s: %s: %s", v.GetRunId(), v.GetState(), v.GetError())
	}
	out := make(map[string]any)
	if v.GetOutputsJson() == "" {
		return out, nil
	}
	if err := json.Unmarshal([]byte(v.GetOutputsJson()), &out); err != nil {
		return nil, fmt.Errorf("read the outputs of run %s: %w", v.GetRunId(), err)
	}
	return out, nil
}
