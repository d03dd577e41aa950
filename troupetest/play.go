package troupetest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/internal/yamldoc"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/pipeline"
)

// Stage is where a transcript is played.
type Stage struct {
	Dir   string         // folder to work in; whatever the agent does there is done
	Model string         // by name; "" is the agent's or the default one
	Plan  *pipeline.Plan // of a transcript with a pipeline
}

// Play has a runtime say and do what the transcript asks for. Nobody answers questions: what asks is denied. An error means that it could not be
// played; that something else came than was expected is none.
func (t *Transcript) Play(ctx context.Context, rt *troupe.Runtime, s Stage) (*Played, error) {
	p := &Played{of: t, Scripted: true}
	if t.Pipeline != "" {
		got, err := t.run(ctx, rt, s)
		p.Got = [][]string{got}
		return p, err
	}
	o := troupe.SessionOptions{Dir: s.Dir, Trust: t.trust(), Agent: t.Agent, Model: s.Model, Rules: t.Allow}
	session, err := rt.Session(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("play %s: %w", t.Name, err)
	}
	for _, x := range t.Exchanges {
		r := &recorder{dir: s.Dir}
		for e, err := range session.Stream(ctx, x.Prompt) {
			if err != nil {
				return nil, fmt.Errorf("play %s: %w", t.Name, err)
			}
			r.note(e)
		}
		p.Got, p.Scripted = append(p.Got, r.out), p.Scripted && !r.real
	}
	return p, nil
}

func (t *Transcript) trust() troupe.Trust {
	if t.Full {
		return troupe.Full
	}
	return troupe.Restricted
}

// recorder writes down what happens in a turn. Results of calls that ran side by side are written in the order of the calls.
type recorder struct {
	dir     string
	out     []string
	calls   []string // ids, of the newest answer
	results map[string][]string
	real    bool // a language model answered
}

func (r *recorder) note(e *troupe.Event) {
	switch e.GetType() {
	case messages.EventGenerationCompleted:
		r.settle()
		r.real = r.real || !e.GetScripted()
		if e.GetText() != "" {
			r.text("<", e.GetText())
		}
		for _, c := range e.GetToolCalls() {
			args, err := compact(c.GetArguments())
			if err != nil {
				args = r.clean(c.GetArguments())
			}
			r.out, r.calls = append(r.out, "call "+r.word(c.GetName())+" "+r.placed(args)), append(r.calls, c.GetId())
		}
	case messages.EventGenerationDiscarded:
		r.out = append(r.out, "again "+e.GetErrorCode())
	case messages.EventToolFinished:
		one := &recorder{dir: r.dir, out: []string{strings.TrimSpace("result " + r.word(e.GetTool()) + " " + e.GetStatus() + " " + e.GetErrorCode())}}
		if e.GetText() != "" {
			one.text("|", e.GetText())
		}
		if r.results == nil {
			r.results = make(map[string][]string)
		}
		r.results[e.GetCallId()] = one.out
	case messages.EventTurnCompleted:
		r.settle()
		reason, _, _ := strings.Cut(e.GetReason(), "\n")
		r.out = append(r.out, strings.TrimSpace("end "+e.GetOutcome()+" "+r.clean(reason)))
	}
}

// settle writes the results of the calls that were made.
func (r *recorder) settle() {
	for _, id := range r.calls {
		r.out = append(r.out, r.results[id]...)
	}
	r.calls, r.results = nil, nil
}

// text writes a text, each line behind its sign.
func (r *recorder) text(sign, text string) {
	for _, l := range lines(text) {
		r.out = append(r.out, strings.TrimRight(sign+" "+r.clean(l), " \t"))
	}
}

// clean takes out of a line what differs from one run to the next, and what a terminal could obey.
func (r *recorder) clean(l string) string {
	return yamldoc.Printable(r.placed(l))
}

// placed has a name in place of the folder, which is another one each time.
func (r *recorder) placed(l string) string {
	if r.dir == "" {
		return l
	}
	return strings.ReplaceAll(l, r.dir, "FOLDER")
}

// word is a name that a model has made up, as one word of a line.
func (r *recorder) word(name string) string {
	return strings.Join(strings.Fields(r.clean(name)), "_")
}

// run runs the pipeline to its end.
func (t *Transcript) run(ctx context.Context, rt *troupe.Runtime, s Stage) ([]string, error) {
	if s.Plan == nil {
		return nil, errors.New("play " + t.Name + ": the stage has no plan of the pipeline")
	}
	inputs, err := s.Plan.Root.Set(t.Set)
	if err != nil {
		return nil, fmt.Errorf("play %s: %w", t.Name, err)
	}
	o := troupe.RunOptions{Inputs: inputs, Dir: s.Dir, Trust: t.trust(), Model: s.Model, Rules: t.Allow, NoInput: true}
	run, err := rt.RunPipeline(ctx, s.Plan, o)
	if err != nil {
		return nil, fmt.Errorf("play %s: %w", t.Name, err)
	}
	v, err := run.Wait(ctx)
	if err != nil {
		return nil, fmt.Errorf("play %s: %w", t.Name, err)
	}
	r := &recorder{dir: s.Dir}
	for _, step := range v.GetStepViews() {
		r.out = append(r.out, "step "+step.GetStep()+" "+step.GetState())
		if text := step.GetError(); text != "" {
			r.text("|", text)
		} else if out := step.GetOutputJson(); out != "" {
			r.text("|", out)
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
	return r.out, nil
}
