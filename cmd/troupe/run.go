package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/client"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/pipeline"
)

// runFlags are the flags of `troupe run`.
type runFlags struct {
	dir, model, agent, session, trust string
	resume, isolate                   bool // resume: --continue
	files, allow, workspaces          []string
	budget, schema, mode, record      string
}

func newRun(a *app) *cobra.Command {
	f := &runFlags{}
	cmd := formats(&cobra.Command{
		Use:   "run [PROMPT | -]",
		Short: "One turn of one agent in a folder, as it happens",
		Long: `One turn of one agent in a folder, as it happens.

The agent's text goes to stdout, everything else to stderr. - reads the prompt from stdin. The exit
code follows from the turn's outcome (see troupe help exit-codes).

The session is kept: -s ID or --continue go on with it. Without a prompt they finish a turn that was
interrupted, or else print the last turn again.

While a turn of the session is open, a prompt waits for its own. --mode steer gives it to the open turn, whose model reads it
with its next request, and follows that; where that turn makes no further one, the prompt has a turn of its own. --mode interrupt
cancels the open turn first, and --mode reject sends nothing then (exit 75).

With --schema the agent is told to answer with JSON that fits. An answer that does not is sent back to it, twice at most; when
none fits, the exit code is 2. With -s and without a prompt the last answer is held against the schema.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return nil
			}
			e := usage("troupe run: unexpected %q after the prompt %q", args[1], args[0])
			e.hint = "put the whole prompt into quotes, or give it on stdin with -"
			return e
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.run(cmd, f, args) },
	}, "text", "ndjson", "json")
	folderFlag(cmd, &f.dir)
	flags := cmd.Flags()
	flags.StringVarP(&f.model, "model", "m", "", "`MODEL`: PROVIDER/NAME or an alias (TROUPE_MODEL)")
	flags.StringVar(&f.agent, "agent", "", "`AGENT` profile of the configuration")
	flags.StringVarP(&f.session, "session", "s", "", "go on with the session `ID`")
	flags.BoolVar(&f.resume, "continue", false, "go on with the newest session of the folder")
	flags.StringVar(&f.trust, "trust", "", "`LEVEL` of trust in the folder for this session: full or restricted")
	flags.StringArrayVarP(&f.files, "file", "f", nil, "`FILE` given along with the prompt; may be repeated")
	flags.StringArrayVar(&f.allow, "allow", nil, "`RULE` of what needs no question, for example 'exec(go test*)'; may be repeated")
	flags.StringArrayVar(&f.workspaces, "workspace", nil, "attach `URI[=NAME]`, a folder or an address, besides the folder; may be repeated")
	flags.StringVar(&f.budget, "budget", "", "`AMOUNTS` that the session may spend, such as usd=1,tokens=50000")
	flags.StringVar(&f.schema, "schema", "", "the answer is JSON that fits the JSON schema in `FILE`, and stdout gets it alone")
	flags.StringVar(&f.mode, "mode", "", "with -s or --continue: what becomes of the prompt while a turn is open: `MODE` is "+strings.Join(inputModes(), ", ")+" (default queue)")
	recordFlag(cmd, &f.record)
	flags.BoolVar(&f.isolate, "isolate", false, "work in a copy of the folder; see troupe diff and troupe apply")
	return cmd
}

// check refuses flags that contradict each other. What a session was made with, it keeps.
func (f *runFlags) check(cmd *cobra.Command) error {
	if cmd.Flags().Changed("schema") && f.schema == "" {
		return usage("troupe run: --schema needs a file")
	}
	if cmd.Flags().Changed("budget") { // an empty one is a mistake of a script, and no budget
		if _, err := parseAmounts("troupe run: --budget", f.budget); err != nil {
			return err
		}
	}
	if f.session != "" && f.resume {
		return usage("troupe run: -s and --continue exclude each other")
	}
	if err := f.checkMode(cmd); err != nil {
		return err
	}
	if f.trust != "" && f.trust != "full" && f.trust != "restricted" {
		e := usage("troupe run: --trust %s: there is no such level", f.trust)
		e.hint = "one of full, restricted"
		return e
	}
	if f.session == "" && !f.resume {
		return nil
	}
	return f.checkKept(cmd)
}

// checkKept refuses flags of new sessions where one goes on.
func (f *runFlags) checkKept(cmd *cobra.Command) error {
	if cmd.Flags().Changed("workspace") {
		e := usage("troupe run: --workspace is for new sessions")
		e.hint = "attach it to the session: troupe workspace attach URI --session ID"
		return e
	}
	kept := []string{"model", "agent", "trust", "allow", "isolate", "budget"}
	if f.session != "" {
		kept = append(kept, "dir")
	}
	for _, name := range kept {
		if cmd.Flags().Changed(name) {
			e := usage("troupe run: --%s cannot be changed: a session keeps its folder, model, agent and trust", name)
			e.hint = "leave it out, or begin a new session without -s and --continue"
			return e
		}
	}
	if f.session != "" && !messages.ValidID(messages.SessionPrefix, f.session) {
		e := usage("troupe run: -s %q is no session id", f.session)
		e.hint = "troupe ls sessions lists them"
		e.code = exitMissing
		return e
	}
	return nil
}

// run is `troupe run`.
func (a *app) run(cmd *cobra.Command, f *runFlags, args []string) error {
	if err := f.check(cmd); err != nil {
		return err
	}
	ctx := cmd.Context()
	var schema *pipeline.Schema
	if f.schema != "" {
		var err error
		if schema, err = a.readSchema(f.schema); err != nil {
			return err
		}
	}
	if f.mode != "" && len(args) == 0 {
		return usage("troupe run: --mode %s needs a prompt", f.mode)
	}
	parts, err := a.prompt(ctx, f, args)
	if err != nil {
		return err
	}
	loaded, err := a.load(f.dir)
	if err != nil {
		return err
	}
	r := &runner{a: a, flags: f, models: newModels(loaded, a.secrets), parts: parts, mode: f.inputMode(), schema: schema, log: &turnLog{}, kicks: newKicks()}
	if schema != nil && parts != nil {
		r.parts = append(r.parts, &messages.Part{Kind: &messages.Part_Text{Text: schema.Prompt()}})
	}
	r.opening = opening{loaded: loaded, models: r.models, dir: f.dir, work: true}
	if r.resumes() && !kept(loaded) {
		return noSuchSession(f)
	}
	r.view = a.newView()
	if _, text := r.view.(*textView); text && schema != nil {
		r.view = newAnswerView(a)
	}
	return a.recorded(loaded, r.models, f.record, func() error {
		if !r.resumes() {
			if err := r.prepare(ctx, loaded); err != nil {
				return err
			}
		}
		return r.play(ctx)
	})
}

// resumes says whether an earlier session goes on.
func (r *runner) resumes() bool { return r.flags.session != "" || r.flags.resume }

func (a *app) newView() view {
	switch a.flags.format {
	case "ndjson":
		return &eventView{out: a.out}
	case "json":
		return &objectView{out: a.out}
	}
	return &textView{out: a.out, note: a.note, style: a.styleFor(a.errTerm), both: a.outTerm && a.errTerm}
}

func noSuchSession(f *runFlags) error {
	what := "session " + f.session + ": nothing was kept yet"
	if f.resume {
		what = "--continue: there is no session in this folder yet"
	}
	return &exitError{code: exitMissing, what: what, hint: `begin one with: troupe run "..."`}
}

// runner is one `troupe run`: its session is made or found in a house, and its turn followed, in the
// next house if the first one is taken away.
type runner struct {
	a       *app
	flags   *runFlags
	opening opening
	models  *models
	parts   []*messages.Part // nil: no prompt
	create  *messages.CreateSession
	input   string                      // id of the input that is waited for; "" waits for a turn
	turn    string                      // id of the turn that is waited for, when it is known
	mode    messages.InputAccepted_Mode // of the prompt
	schema  *pipeline.Schema            // what the answer has to fit; may be nil
	repairs int                         // how often an answer was sent back

	session string
	sent    bool // the command that begins it was sent once: its duplicate is no error
	begun   bool
	unpaid  bool // it waits for more budget, and nobody is here to give it some

	unanswered bool // a question stood there when the run was interrupted

	joiners  map[string]bool // inputs that joined the turn, by id
	joined   bool            // the prompt was taken into a turn that others began
	accepted bool            // the acceptance of the prompt was seen
	after    uint64          // last event that was seen
	kicks    kicks
	started  chan struct{} // closed when the turn has begun
	told     bool          // that no language model is running
	view     view
	lines    lines
	log      *turnLog
}

// tries is how often a run moves to another house when the holder goes away.
const tries = 4

// play runs the turn to its end and gives its exit code.
func (r *runner) play(ctx context.Context) error {
	for try := 1; ; try++ {
		h, err := r.a.openHouse(ctx, r.opening)
		if err != nil {
			return err
		}
		err = h.during(ctx, func(ctx context.Context) error {
			if err := r.inHouse(ctx, h); err != nil {
				return err
			}
			r.a.stay(ctx, h)
			return nil
		})
		if err != nil && ctx.Err() != nil && r.log.outcome == "" {
			err = r.interrupted(ctx, h)
		}
		gone := err != nil && h.gone(err) && try < tries
		if cerr := h.close(ctx); err == nil && cerr != nil {
			r.a.note("troupe: warning: %v", cerr)
		}
		if !gone {
			return r.end(err)
		}
		r.a.note("troupe: %s", h.wentAway("this turn"))
	}
}

// stay waits until those who are attached have what they wait for.
func (a *app) stay(ctx context.Context, h *house) {
	n := h.attached()
	if n == 0 {
		return
	}
	more := fmt.Sprintf("%d more commands work", n)
	if n == 1 {
		more = "1 more command works"
	}
	a.note("troupe: %s in this process: it stays until that is done; Ctrl-C makes the others go on by themselves", more)
	h.linger(ctx)
}

// wentAway says that the holder ended which did something.
func (h *house) wentAway(did string) string {
	if h.remote {
		return "the server is gone; trying again"
	}
	return "the process that ran " + did + " is gone; it goes on here"
}

// gone tells whether an error means that the holder ended, so that somebody else may hold now.
func (h *house) gone(err error) bool {
	if h.client == nil {
		return false
	}
	var refused *messages.Failure
	if errors.As(err, &refused) {
		return refused.GetCode() == messages.CodeUnavailable || refused.GetCode() == messages.CodeClosed
	}
	return !errors.As(err, new(*exitError)) && !errors.Is(err, context.Canceled) && !errors.Is(err, client.ErrEnds) // which the next one would end of, too
}

// inHouse begins the session if that was not done yet, and follows its turn; with a schema, until an answer fits.
func (r *runner) inHouse(ctx context.Context, h *house) error {
	for {
		if !r.begun {
			if err := r.begin(ctx, h); err != nil {
				return err
			}
			r.begun = true
		}
		if err := r.follow(ctx, h); err != nil {
			return err
		}
		if !r.repair() {
			return nil
		}
	}
}

// end prints the last line and gives the exit code.
func (r *runner) end(err error) error {
	if err != nil {
		return err
	}
	if err := r.view.done(r.log); err != nil {
		return err
	}
	switch r.log.outcome {
	case "done":
	case "waiting":
		what := "a person"
		if r.unpaid {
			what = "more budget"
		}
		r.a.fault("troupe: the turn waits for %s; after that go on with: troupe run -s %s", what, r.session)
	default:
		reason := ""
		if r.log.reason != "" {
			reason = ": " + indent(strings.TrimRight(r.log.reason, "\n"), 2)
		}
		r.a.fault("troupe: the turn ended with outcome %s%s", r.log.outcome, reason)
	}
	if r.log.misfit != "" {
		r.a.fault("troupe: the answer does not fit %s: %s; troupe show %s has it", visible(r.flags.schema), oneLine(r.log.misfit, 200), r.session)
	}
	r.a.note("%s", r.log.summary())
	if r.log.misfit != "" {
		return silent(exitPartial)
	}
	return silent(outcomeCode(r.log.outcome))
}

// interrupted is how a run ends that was told to stop. In this process the turn stays open and goes
// on when the session is; in another one nobody watches it any more, and at a question who interrupts does not want it put again.
func (r *runner) interrupted(ctx context.Context, h *house) error {
	if !r.begun && r.repairs == 0 {
		return &exitError{code: exitInterrupted, what: "interrupted before the session was made"}
	}
	goOn := "go on with: troupe run -s " + r.session
	if h.client != nil || r.unanswered {
		goOn += r.forsake(ctx, h)
	}
	if v, ok := r.view.(*textView); ok {
		if err := v.endLine(); err != nil {
			return err
		}
	}
	if h.client != nil && r.onlyWatches() {
		return &exitError{
			code: exitInterrupted, what: fmt.Sprintf("no longer watched; session %s goes on", r.session),
			hint: "watch it again with: troupe run -s " + r.session + "; end its turn with: troupe cancel " + r.session,
		}
	}
	return &exitError{
		code: exitInterrupted, what: fmt.Sprintf("interrupted; session %s is kept", r.session),
		hint: goOn,
	}
}

// scripted says once that no language model is running, but the model of this name, if it is known.
func (r *runner) scripted(name string) {
	if !r.told {
		r.told = true
		r.a.note("%s", answersOf(name))
	}
}
