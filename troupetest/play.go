package troupetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/pipeline"
	"github.com/troupe-dev/troupe/policy"
)

// Stage is where a transcript is played.
type Stage struct {
	Dir   string         // folder to work in; whatever the agent does there is done
	Model string         // by name; "" is the agent's or the default one
	Plan  *pipeline.Plan // of a transcript with a pipeline
}

// Play has a runtime say and do what the transcript asks for. Questions are answered as its lines say; a transcript without such lines asks nobody, and
// what asks is denied. An error means that it could not be played (a *TranscriptError: for what stands in it); that something else came than was
// expected is none.
func (t *Transcript) Play(ctx context.Context, rt *troupe.Runtime, s Stage) (*Played, error) {
	p := &Played{of: t, Scripted: true}
	if err := t.Check(s); err != nil {
		return nil, err
	}
	var err error
	if t.Pipeline != "" {
		p.Got = make([][]string, 1)
		p.Got[0], p.Scripted, err = t.run(ctx, rt, s)
	} else {
		p.Got, p.Scripted, err = t.talk(ctx, rt, s)
	}
	p.Got = number(p.Got)
	return p, err
}

// Check refuses what cannot be played, before anything is.
func (t *Transcript) Check(s Stage) error {
	for _, rule := range t.Allow {
		if _, err := policy.ParseRule(rule); err != nil {
			return t.Fault("allow", rule, err, "such as @read, or exec(go test*)")
		}
	}
	if t.Pipeline == "" {
		return nil
	}
	_, err := t.inputs(s)
	return err
}

// inputs are those of the run.
func (t *Transcript) inputs(s Stage) (map[string]any, error) {
	if s.Plan == nil {
		return nil, errors.New("play " + t.Name + ": the stage has no plan of the pipeline")
	}
	root := s.Plan.Root
	for _, v := range t.Set {
		if _, err := root.Set([]string{v}); err != nil {
			return nil, t.Fault("set", v, errors.New(strings.TrimPrefix(err.Error(), "--set ")), "set: NAME=VALUE")
		}
	}
	given, err := root.Set(t.Set)
	if err != nil {
		return nil, t.Fault("pipeline", t.Pipeline, err, "")
	}
	load := func(name string) (string, error) {
		text, err := os.ReadFile(t.Beside(name))
		return string(text), err
	}
	all, err := root.Fill(given, load)
	if err != nil {
		return nil, t.Fault("pipeline", t.Pipeline, errors.New(strings.ReplaceAll(err.Error(), "give it with --set ", "give it with a line set: ")), "")
	}
	return all, nil
}

// Furnish copies the folder that the transcript names, if it does, into the one that is worked in.
func (t *Transcript) Furnish(dir string) error {
	if t.Folder == "" {
		return nil
	}
	from := t.Beside(t.Folder)
	info, err := os.Stat(from)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is no folder", from)
	}
	if err == nil {
		err = os.CopyFS(dir, os.DirFS(from))
	}
	if err != nil {
		return t.Fault("folder", t.Folder, err, "")
	}
	return nil
}

// Beside is the path of a file that the transcript names.
func (t *Transcript) Beside(name string) string {
	return filepath.Join(filepath.Dir(t.Name), filepath.FromSlash(name))
}

func (t *Transcript) trust() troupe.Trust {
	if t.Full {
		return troupe.Full
	}
	return troupe.Restricted
}

// talk asks an agent, one prompt after the other.
func (t *Transcript) talk(ctx context.Context, rt *troupe.Runtime, s Stage) (got [][]string, scripted bool, err error) {
	o := troupe.SessionOptions{Dir: s.Dir, Trust: t.trust(), Agent: t.Agent, Model: s.Model, Rules: t.Allow, Ask: t.asks()}
	session, err := rt.Session(ctx, o)
	switch {
	case err != nil && t.Agent != "":
		return nil, true, t.Fault("agent", t.Agent, err, "")
	case err != nil:
		return nil, true, fmt.Errorf("play %s: %w", t.Name, err)
	}
	scripted = true
	for _, x := range t.Exchanges {
		r := newRecorder(s.Dir, x.Prompt, &answers{answering(x.Want)})
		if err := r.exchange(ctx, rt, session); err != nil {
			return got, scripted, fmt.Errorf("play %s: %w", t.Name, err)
		}
		got, scripted = append(got, r.main.out), scripted && !r.real
	}
	return got, scripted, nil
}

// exchange sends the prompt, and waits for all that it sets off.
func (r *recorder) exchange(ctx context.Context, rt *troupe.Runtime, s *troupe.Session) error {
	hear := func(e *troupe.Event, err error) error {
		if err != nil {
			return err
		}
		q := r.note(e)
		if q == nil {
			return nil
		}
		counted, err := r.answers.ask(ctx, rt, q)
		if counted {
			q.about.by.come(q.about.id, q.line)
		}
		return err
	}
	for e, err := range s.Stream(ctx, r.prompt) {
		if err := hear(e, err); err != nil {
			return err
		}
	}
	if r.main == nil {
		return errors.New("the prompt was not heard")
	}
	if r.over() {
		return nil
	}
	for e, err := range rt.Events(ctx, s.ID(), r.cursor) { // of those who work in the background
		if err := hear(e, err); err != nil || r.over() {
			return err
		}
	}
	return ctx.Err()
}

// run runs the pipeline to its end.
func (t *Transcript) run(ctx context.Context, rt *troupe.Runtime, s Stage) (got []string, scripted bool, err error) {
	fail := func(err error) ([]string, bool, error) { return nil, true, fmt.Errorf("play %s: %w", t.Name, err) }
	inputs, err := t.inputs(s)
	if err != nil {
		return nil, true, err
	}
	x := &t.Exchanges[0]
	o := troupe.RunOptions{Inputs: inputs, Dir: s.Dir, Trust: t.trust(), Model: s.Model, Rules: t.Allow, NoInput: !t.asks()}
	run, err := rt.RunPipeline(ctx, s.Plan, o)
	if err != nil {
		return fail(err)
	}
	r := newRecorder(s.Dir, "", nil)
	d := &desk{answers: &answers{answering(x.Want)}, rec: r, seen: map[string]bool{}, steps: map[string][]string{}}
	v, err := r.watch(ctx, rt, run, d, o.NoInput)
	if err != nil {
		return fail(err)
	}
	scripted, err = answeredByScripts(ctx, rt, run.Session())
	if err != nil {
		return fail(err)
	}
	slices.Sort(d.tools)
	r.out = append(r.out, d.tools...)
	r.steps(v, d)
	return r.out, scripted, nil
}

// watch waits for the end of a run, and answers what it asks meanwhile.
func (r *recorder) watch(ctx context.Context, rt *troupe.Runtime, run *troupe.Run, d *desk, alone bool) (*troupe.RunView, error) {
	if alone {
		return run.Wait(ctx)
	}
	watching, stop := context.WithCancel(ctx)
	kicks := make(chan error, 1)
	var watchers sync.WaitGroup
	kick := func(err error) {
		select {
		case kicks <- err:
		case <-watching.Done():
		}
	}
	defer func() {
		stop()
		watchers.Wait()
	}()
	watchers.Go(func() { // of what its agents' calls ask
		for e, err := range rt.Events(watching, run.Session(), 0) {
			if err != nil || e.GetType() == messages.EventApprovalRequested {
				kick(err)
			}
		}
	})
	views := make(chan *troupe.RunView)
	watchers.Go(func() { // of what its steps ask
		var at uint64
		for watching.Err() == nil {
			v, err := run.Changed(watching, at)
			if err != nil {
				kick(err)
				return
			}
			at = v.GetRevision()
			select {
			case views <- v:
			case <-watching.Done():
			}
		}
	})
	for {
		select {
		case <-ctx.Done(): // of which the watchers may say nothing
			return nil, context.Cause(ctx)
		case err := <-kicks:
			if err != nil {
				return nil, err
			}
		case v := <-views:
			if over(v) {
				return v, nil
			}
		}
		if err := d.ask(ctx, rt, run.Session()); err != nil {
			return nil, err
		}
	}
}

// over says whether a run has ended.
func over(v *troupe.RunView) bool {
	return slices.Contains([]string{"succeeded", "failed", "cancelled"}, v.GetState())
}

// steps writes down what a run has come to, each step below the answers to what it asked.
func (r *recorder) steps(v *troupe.RunView, d *desk) {
	for _, step := range v.GetStepViews() {
		r.out = append(r.out, d.steps[step.GetStep()]...)
		r.out = append(r.out, "step "+step.GetStep()+" "+step.GetState())
		if text := step.GetError(); text != "" {
			r.out = append(r.out, r.text("|", text)...)
		} else if out := step.GetOutputJson(); out != "" {
			r.out = append(r.out, r.text("|", out)...)
		}
	}
	if out := v.GetOutputsJson(); out != "" {
		if text, err := compact(out); err == nil {
			out = text
		} else {
			out = r.clean(out)
		}
		r.out = append(r.out, "outputs "+r.placed(out))
	}
	reason, _, _ := strings.Cut(v.GetError(), "\n")
	r.out = append(r.out, strings.TrimSpace("end "+v.GetState()+" "+r.clean(reason)))
}

// answeredByScripts says whether no language model was running in any turn of a session that came to its end.
func answeredByScripts(ctx context.Context, rt *troupe.Runtime, session string) (bool, error) {
	reply, err := rt.Ask(ctx, &messages.ListWorkers{SessionId: session})
	if err != nil {
		return false, err
	}
	all, ok := reply.(*messages.Workers)
	if !ok {
		return false, fmt.Errorf("list the workers of %s: %T", session, reply)
	}
	for _, w := range all.GetWorkers() {
		if w.GetLastOutcome() != "done" || w.GetUsage().GetOutputTokens() == 0 { // it asked no model
			continue
		}
		reply, err := rt.Ask(ctx, &messages.ToSession{SessionId: session, Command: &messages.ToSession_AwaitTurn{AwaitTurn: &messages.AwaitTurn{WorkerId: w.GetId()}}})
		if err != nil {
			return false, err
		}
		if turn, ok := reply.(*messages.TurnResult); ok && !turn.GetScripted() {
			return false, nil
		}
	}
	return true, nil
}
