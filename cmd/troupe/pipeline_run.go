package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/pipeline"
)

// pipelineFlags are the flags of `troupe pipeline run`.
type pipelineFlags struct {
	set, allow        []string
	dir, model, trust string
	resume, record    string
	acceptChanges     bool
	scripted          bool // it is said that no language model is running
}

func newPipelineRun(a *app) *cobra.Command {
	f := &pipelineFlags{}
	cmd := formats(&cobra.Command{
		Use:   "run [FILE]",
		Short: "Run a pipeline; with --resume go on with a run that was interrupted or failed",
		Long: `Run a pipeline. Its outputs go to stdout as JSON, what happens to stderr.

Every finished step and item is kept: --resume RUN repeats none of them, and tries again what has failed. A file that has
changed since is refused, unless --accept-changes says that it counts, for all that has not ended. The budget of the
whole file stays: troupe budget add SESSION.

People are asked by approvals: troupe ls approvals, troupe approve ID [--reason CHOICE], troupe deny ID.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.runPipeline(cmd.Context(), f, args) },
	}, "text", "json", "ndjson")
	flags := cmd.Flags()
	folderFlag(cmd, &f.dir)
	flags.StringArrayVar(&f.set, "set", nil, "`NAME=VALUE` of an input; may be repeated")
	flags.StringVarP(&f.model, "model", "m", "", "`MODEL` instead of the one that the pipeline's defaults name")
	flags.StringVar(&f.trust, "trust", "", "`LEVEL` of trust in the folder for this run: full or restricted")
	flags.StringArrayVar(&f.allow, "allow", nil, "`RULE` of what needs no question; may be repeated")
	recordFlag(cmd, &f.record)
	flags.StringVar(&f.resume, "resume", "", "go on with the run `RUN`")
	flags.BoolVar(&f.acceptChanges, "accept-changes", false, "with --resume: the file as it is now counts, but for the budget of the whole file")
	return cmd
}

func (f *pipelineFlags) check(args []string) error {
	switch {
	case f.resume == "" && len(args) == 0:
		e := usage("troupe pipeline run: FILE is missing")
		e.hint = "name a pipeline's file, or a run to go on with: --resume RUN"
		return e
	case f.resume != "" && (len(f.set) > 0 || f.model != "" || f.trust != "" || f.dir != "" || len(f.allow) > 0):
		return usage("troupe pipeline run: a run keeps its inputs, model, folder and trust; leave them out with --resume")
	case f.acceptChanges && (f.resume == "" || len(args) == 0):
		return usage("troupe pipeline run: --accept-changes goes with --resume RUN and FILE")
	case f.trust != "" && f.trust != "full" && f.trust != "restricted":
		return usage("troupe pipeline run: --trust %s: there is no such level", f.trust)
	case f.resume != "" && !messages.ValidID(messages.RunPrefix, f.resume):
		return &exitError{code: exitMissing, what: fmt.Sprintf("%q is no id of a run", f.resume), hint: "troupe ls runs lists them"}
	}
	return checkRules(f.allow)
}

func (a *app) runPipeline(ctx context.Context, f *pipelineFlags, args []string) error {
	if err := f.check(args); err != nil {
		return err
	}
	var plan *pipeline.Plan
	if len(args) == 1 {
		p, err := a.plan(ctx, args[0])
		if err != nil {
			return err
		}
		plan = p
	}
	loaded, err := a.load(f.dir)
	if err != nil {
		return err
	}
	models := newModels(loaded, a.secrets)
	return a.recorded(loaded, models, f.record, func() error { return a.runPlan(ctx, f, plan, loaded, models) })
}

// runPlan begins a run, or goes on with one.
func (a *app) runPlan(ctx context.Context, f *pipelineFlags, plan *pipeline.Plan, loaded *config.Loaded, models *models) (err error) {
	var create *messages.CreateSession
	if f.resume == "" {
		if create, err = a.createRun(ctx, f, plan, loaded, models); err != nil {
			return err
		}
	}
	begin := func(ctx context.Context, n node) error { return a.beginRun(ctx, n, f, plan, create) }
	for try := 1; ; try++ { // in the next house if the first one is taken away
		h, err := a.openHouse(ctx, opening{loaded: loaded, models: models, dir: f.dir, work: true})
		if err != nil {
			return err
		}
		err = h.during(ctx, func(ctx context.Context) error {
			if err := begin(ctx, h); err != nil {
				return err
			}
			begin = func(context.Context, node) error { return nil } // once: to resume a run anew would try again what failed meanwhile
			return a.followRun(ctx, h, f)
		})
		gone := err != nil && h.gone(err) && try < tries
		if cerr := h.close(ctx); err == nil && cerr != nil {
			a.note("troupe: warning: %v", cerr)
		}
		if !gone {
			return err
		}
		a.note("troupe: %s", h.wentAway("this run"))
	}
}

// createRun is the command that starts the run.
func (a *app) createRun(ctx context.Context, f *pipelineFlags, plan *pipeline.Plan, loaded *config.Loaded, m *models) (*messages.CreateSession, error) {
	addr, real, err := a.folder(f.dir)
	if err != nil {
		return nil, err
	}
	given, err := plan.Root.Set(f.set)
	if err != nil {
		return nil, &exitError{code: exitInput, what: err.Error()}
	}
	inputs, err := plan.Root.Fill(given, func(name string) (string, error) {
		if !filepath.IsAbs(name) {
			name = filepath.Join(a.cwd, name)
		}
		return givenText(ctx, name)
	})
	if err != nil {
		return nil, wrongInput(err)
	}
	model := ""
	if f.model != "" {
		if model, err = a.namedModel(ctx, loaded, m, f.model, ""); err != nil {
			return nil, err
		}
	}
	trust, err := a.settleTrust(ctx, addr, real, f.trust)
	if err != nil {
		return nil, err
	}
	env, err := variablesOf(plan)
	if err != nil {
		return nil, err
	}
	create, err := troupe.CreateRun(plan, troupe.RunOptions{
		Inputs: inputs, Dir: real, Trust: trust, Model: model, Env: env, Rules: f.allow, NoInput: a.flags.noInput,
	})
	var refused *messages.Failure
	switch {
	case err != nil && !errors.As(err, &refused):
		return nil, &exitError{code: exitInput, what: err.Error(), err: err}
	case err != nil:
		return nil, err
	}
	if model == "" && !plan.NamesModels() {
		if create.Model, err = a.namedModel(ctx, loaded, m, "", ""); err != nil {
			return nil, err
		}
	}
	for _, name := range append(plan.Models(), create.GetModel()) {
		if strings.Contains(name, config.Scripted+"/") || strings.Contains(name, config.Replay+"/") { // it may be an expression
			f.scripted = true
			a.note("%s", answersOf(name))
			break
		}
	}
	return create, nil
}

// variablesOf are the variables of the environment that a pipeline names, where they are set.
func variablesOf(plan *pipeline.Plan) (map[string]string, error) {
	env := make(map[string]string)
	for _, name := range plan.Vars() {
		v, ok := os.LookupEnv(name)
		if !ok {
			continue
		}
		if !utf8.ValidString(v) {
			return nil, &exitError{code: exitInput, what: "the environment variable " + visible(name) + " is not UTF-8", hint: "encode it, for instance with base64"}
		}
		env[name] = v
	}
	return env, nil
}

// wrongInput is why a run cannot have an input: what became of its file, or that its value is none.
func wrongInput(err error) error {
	e := *classify(err)
	if e.code == exitFailed {
		e.code = exitInput
	}
	e.what, e.err = err.Error(), err
	return &e
}

// beginRun starts a run or goes on with one, which the flags name from then on.
func (a *app) beginRun(ctx context.Context, n node, f *pipelineFlags, plan *pipeline.Plan, create *messages.CreateSession) error {
	if create != nil {
		f.resume = create.GetRun().GetRunId()
		_, err := ask[*messages.SessionView](ctx, n, create)
		return err
	}
	m := &messages.ResumeRun{RunId: f.resume, By: "user", AcceptChanges: f.acceptChanges}
	if plan != nil {
		m.PlanHash, m.Sources = plan.Hash, plan.Sources
	}
	v, err := ask[*messages.RunView](ctx, n, m)
	if err == nil && plan != nil && plan.Root.Budget != nil && f.acceptChanges {
		a.note("troupe: the budget of the whole file stays that of the run; add to it with: troupe budget add %s", v.GetSessionId())
	}
	return err
}

// followRun shows what happens in a run until it is over.
func (a *app) followRun(ctx context.Context, n node, f *pipelineFlags) error {
	id := f.resume
	ctx, cancel := context.WithCancelCause(ctx)
	var watched sync.WaitGroup
	view, goOn := a.newRunView(), "go on with: troupe pipeline run --resume "+id
	view.scripted = f.scripted
	watched.Go(func() { a.watchRun(ctx, n, id, view, cancel) })
	defer watched.Wait()
	defer cancel(nil)
	waits := proto.Uint32(0)
	for rev := uint64(0); ; {
		v, err := ask[*messages.RunView](ctx, n, &messages.AwaitRun{RunId: id, After: rev, Waits: waits, Changes: true, Brief: true})
		if err != nil {
			if errors.Is(context.Cause(ctx), errUnpaid) {
				return &exitError{code: exitAgain, what: "run " + id + " waits for somebody to add to its budget", hint: goOn}
			}
			if ctx.Err() != nil {
				return &exitError{code: exitInterrupted, what: "interrupted; run " + id + " is kept", hint: goOn}
			}
			return err
		}
		rev = v.GetRevision() // I11: the count is a new one each time, since that of the message before has been sent
		waits = proto.Uint32(v.GetWaits())
		if over(v) && (a.flags.format == "json" || a.flags.format == "ndjson") { // whole, with all items
			if v, err = ask[*messages.RunView](ctx, n, &messages.ShowRun{RunId: id}); err != nil {
				return err
			}
		}
		if err := view.show(v); err != nil {
			return err
		}
		switch v.GetState() {
		case pipeline.Succeeded:
			return a.runOver(v, exitDone)
		case pipeline.Failed:
			a.fault("troupe: run %s failed: %s", id, indent(visible(v.GetError()), 2))
			a.fault("troupe: try again what failed with: troupe pipeline run --resume %s", id)
			return a.runOver(v, exitFailed)
		case pipeline.Cancelled:
			return a.runOver(v, exitInterrupted)
		}
		wait(ctx, betweenLooks)
	}
}

func over(v *messages.RunView) bool {
	return v.GetState() != pipeline.Running && v.GetState() != pipeline.Waiting
}

// betweenLooks is how often one looks at a run: many items may end meanwhile.
const betweenLooks = 50 * time.Millisecond

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// runOver prints what a run gave back.
func (a *app) runOver(v *messages.RunView, code int) error {
	switch {
	case a.flags.format == "json":
		j := v.JSON()
		b, err := json.Marshal(j)
		if err != nil {
			return err
		}
		if err := a.say(string(b)); err != nil {
			return err
		}
	case a.flags.format != "ndjson" && v.GetOutputsJson() != "":
		var b bytes.Buffer // as it is: a value of Go has no room for each number
		if err := json.Indent(&b, []byte(v.GetOutputsJson()), "", "  "); err != nil {
			return err
		}
		if err := a.say(b.String()); err != nil {
			return err
		}
	}
	u := v.GetUsage()
	a.note("troupe: run %s %s, session %s, %d of %d steps, %d tokens in, %d out, $%.4f", v.GetRunId(), v.GetState(), v.GetSessionId(), v.GetStepsDone(), v.GetSteps(), u.GetInputTokens(), u.GetOutputTokens(), float64(u.GetCostMicroUsd())/1e6)
	return silent(code)
}
