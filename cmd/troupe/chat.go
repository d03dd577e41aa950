package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/messages"
)

func newChat(a *app) *cobra.Command {
	f := &runFlags{}
	cmd := &cobra.Command{
		Use:   "chat",
		Short: "A conversation in the terminal",
		Long: `A conversation in the terminal. The answers stream, what needs an approval is asked in between, and everything stays in the
scrollback. Lines that end in \ and lines that are pasted together are one prompt; /help lists what else there is.
While a turn is under way, /steer TEXT gives it a word that its model reads next. Ctrl-C cancels the turn, a second one leaves; Ctrl-D leaves. The session is kept: troupe chat -s ID goes on with it.

Where stdin is no terminal, each line of it is a prompt, and stdout gets the answers and nothing else.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.chat(cmd, f) },
	}
	folderFlag(cmd, &f.dir)
	flags := cmd.Flags()
	flags.StringVarP(&f.session, "session", "s", "", "go on with the session `ID`")
	flags.BoolVar(&f.resume, "continue", false, "go on with the newest session of the folder")
	flags.StringVarP(&f.model, "model", "m", "", "`MODEL`: PROVIDER/NAME or an alias (TROUPE_MODEL)")
	flags.StringVar(&f.agent, "agent", "", "`AGENT` profile of the configuration")
	flags.StringVar(&f.trust, "trust", "", "`LEVEL` of trust in the folder for this session: full or restricted")
	flags.StringArrayVar(&f.allow, "allow", nil, "`RULE` of what needs no question, for example 'exec(go test*)'; may be repeated")
	recordFlag(cmd, &f.record)
	return cmd
}

// chat is one `troupe chat`: a session, and one runner per prompt.
type chat struct {
	a      *app
	flags  *runFlags
	loaded *config.Loaded
	models *models
	in     *prompts

	session string
	known   bool      // the session was shown, or made, here
	pending *runner   // the turn that is under way, or next
	late    []*runner // those of what was to steer a turn that had ended by then
	told    bool      // that no language model is running
	empty   int       // times in a row that Ctrl-C was pressed at the prompt
	code    int       // of the first turn that did not end well
}

var (
	errNext  = errors.New("the next prompt is asked for without a house")
	errQuit  = errors.New("the conversation is over")
	errLeave = errors.New("Ctrl-C was pressed twice")
)

func (a *app) chat(cmd *cobra.Command, f *runFlags) error {
	if err := f.check(cmd); err != nil {
		return err
	}
	loaded, err := a.load(f.dir)
	if err != nil {
		return err
	}
	in := &source{in: a.in}
	a.in = in
	c := &chat{
		a: a, flags: f, loaded: loaded, models: newModels(loaded, a.secrets), session: f.session,
		in: &prompts{a: a, in: in, history: &history{}, plain: a.env["TERM"] == "dumb"},
	}
	resumes := f.session != "" || f.resume
	if resumes && !kept(loaded) {
		return noSuchSession(f)
	}
	return a.recorded(loaded, c.models, f.record, func() error {
		if resumes {
			c.pending = c.runner(nil)
		} else if err := c.runner(nil).prepare(cmd.Context(), loaded); err != nil { // better now than after the first prompt was typed
			return err
		}
		return c.play(cmd.Context())
	})
}

// play asks for prompts and takes their turns until somebody leaves. While a process of somebody else works, none is kept waiting
// for a prompt: it is asked for without a house.
func (c *chat) play(ctx context.Context) error {
	for {
		var err error
		if c.pending == nil {
			err = c.prompt(ctx, nil)
		}
		if err == nil && c.pending != nil {
			err = c.open(ctx, c.talk)
		}
		if err != nil && !errors.Is(err, errNext) {
			return c.end(ctx, err)
		}
	}
}

// open opens a house, in another process than before if need be.
func (c *chat) open(ctx context.Context, work func(ctx context.Context, h *house) error) error {
	for try := 1; ; try++ {
		h, err := c.a.openHouse(ctx, opening{loaded: c.loaded, models: c.models, dir: c.flags.dir, work: true})
		if err != nil {
			return err
		}
		err = h.during(ctx, func(ctx context.Context) error {
			err := work(ctx, h)
			if errors.Is(err, errQuit) {
				c.a.stay(ctx, h)
			}
			return err
		})
		own := errors.Is(err, errNext) || errors.Is(err, errQuit) || errors.Is(err, errLeave)
		gone := err != nil && !own && h.gone(err) && try < tries
		if cerr := h.close(ctx); cerr != nil {
			c.a.note("troupe: warning: %v", cerr)
		}
		if !gone {
			return err
		}
		c.a.note("troupe: the process that ran this turn is gone; it goes on here")
	}
}

// talk takes turns in one house.
func (c *chat) talk(ctx context.Context, h *house) error {
	for {
		if c.pending != nil {
			err := c.turn(ctx, h)
			var refused *messages.Failure
			switch {
			case err == nil:
			case errors.As(err, &refused) && !h.gone(err) && c.a.canAsk() && c.known: // it can be put in another way
				c.a.note("troupe: %s", visible(refused.GetMessage()))
			default:
				return err
			}
			c.pending = nil
			if len(c.late) > 0 {
				c.pending, c.late = c.late[0], c.late[1:]
				continue
			}
		}
		if h.client != nil {
			return errNext
		}
		if err := c.prompt(ctx, h); err != nil {
			return err
		}
	}
}

// prompt asks for the next prompt, and does what is said with a slash. h is nil where no house stands.
func (c *chat) prompt(ctx context.Context, h *house) error {
	text, err := c.in.next(ctx)
	switch {
	case errors.Is(err, errCtrlC) && c.empty > 0:
		return errLeave
	case errors.Is(err, errCtrlC):
		c.empty++
		c.a.note("troupe: Ctrl-C again, or Ctrl-D, leaves")
		return nil
	case errors.Is(err, io.EOF):
		return errQuit
	case err != nil:
		return err
	}
	c.empty = 0
	if strings.TrimSpace(text) == "" {
		return nil
	}
	if command, arg, ok := c.command(text); ok && c.a.canAsk() {
		err := c.obey(ctx, h, command, arg)
		if err == nil || errors.Is(err, errQuit) || ctx.Err() != nil {
			return err
		}
		classify(err).without(c.a.secrets).render(c.a.err, c.a.styleFor(c.a.errTerm))
		return nil
	}
	if !utf8.ValidString(text) {
		return &exitError{code: exitInput, what: "the prompt is not UTF-8"}
	}
	c.pending = c.runner([]*messages.Part{{Kind: &messages.Part_Text{Text: text}}})
	return nil
}

// runner is what takes the turn of one prompt, as `troupe run` does.
func (c *chat) runner(parts []*messages.Part) *runner {
	r := &runner{a: c.a, flags: c.flags, models: c.models, parts: parts, log: &turnLog{}, kicks: newKicks(), told: c.told, session: c.session}
	r.log.session = c.session
	r.view = &textView{out: c.a.out, note: c.a.note, style: c.a.styleFor(c.a.errTerm), both: c.a.outTerm && c.a.errTerm}
	return r
}

// end says how to go on, and gives the exit code.
func (c *chat) end(ctx context.Context, err error) error {
	goOn := "go on with: troupe chat -s " + c.session
	if c.session == "" {
		goOn = ""
	}
	switch {
	case errors.Is(err, errQuit):
		if goOn != "" {
			c.a.note("troupe: %s", goOn)
		}
		return silent(c.code)
	case errors.Is(err, errLeave), ctx.Err() != nil:
		return &exitError{code: exitInterrupted, what: "interrupted", hint: goOn}
	}
	return err
}

// history keeps the prompts of a conversation, the newest last.
type history struct{ all []string }

// maxHistory is how many prompts are kept.
const maxHistory = 1000

// Add keeps a prompt, unless it is the one before.
func (h *history) Add(entry string) {
	if n := len(h.all); strings.TrimSpace(entry) == "" || n > 0 && h.all[n-1] == entry {
		return
	}
	h.all = append(h.all[max(0, len(h.all)-maxHistory+1):], entry)
}

// Len is how many there are.
func (h *history) Len() int { return len(h.all) }

// At gives the ith from the end, from 0.
func (h *history) At(i int) string { return h.all[len(h.all)-1-i] }

// seed begins a history with the prompts of earlier turns.
func (h *history) seed(turns []*messages.TurnView) {
	for _, t := range slices.Backward(turns) {
		if len(h.all) < 100 && !strings.Contains(t.GetInput(), "\n") {
			h.Add(visible(t.GetInput()))
		}
	}
	slices.Reverse(h.all)
}

// greet says which session it is.
func (c *chat) greet(shown *messages.Shown) {
	s := shown.GetSession()
	text := fmt.Sprintf("troupe: session %s, %s, model %s", s.GetId(), count(int(s.GetTurns()), "turn"), s.GetModel())
	for _, w := range s.GetWorkspaces() {
		if w.GetPrimary() {
			text += fmt.Sprintf(", in %s (%s)", w.GetUri(), messages.TrustName(w.GetTrust()))
		}
	}
	c.a.note("%s", visible(text))
}
