package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/policy"
)

// maxPrompt bounds a prompt from stdin, and each file, in bytes.
const maxPrompt = 4 << 20

// prompt gathers what is sent: the words, then the files. nil means that there is no prompt.
func (a *app) prompt(ctx context.Context, f *runFlags, args []string) ([]*messages.Part, error) {
	if len(args) == 0 {
		if f.session != "" || f.resume {
			if len(f.files) > 0 {
				return nil, usage("troupe run: -f needs a prompt to go along with")
			}
			return nil, nil
		}
		e := usage("troupe run: the prompt is missing")
		e.hint = `say what to do: troupe run "What does this project do?"; - reads stdin`
		return nil, e
	}
	text := args[0]
	if text == "-" {
		var err error
		if text, err = readPrompt(ctx, a.in); err != nil {
			return nil, err
		}
	}
	if strings.TrimSpace(text) == "" {
		return nil, usage("troupe run: the prompt is empty")
	}
	if !utf8.ValidString(text) {
		return nil, &exitError{code: exitInput, what: "the prompt is not UTF-8"}
	}
	parts := []*messages.Part{{Kind: &messages.Part_Text{Text: text}}}
	for _, name := range f.files {
		content, err := a.readFile("-f", name)
		if err != nil {
			return nil, err
		}
		parts = append(parts, &messages.Part{Kind: &messages.Part_File{File: &messages.FilePart{Name: name, Text: content}}})
	}
	return parts, nil
}

// readPrompt reads a prompt from stdin.
func readPrompt(ctx context.Context, in io.Reader) (string, error) {
	return readStdin(ctx, in, "the prompt", maxPrompt, "put it into a file of the folder")
}

// readStdin reads all of stdin, which is what its errors call it; hint is what to do when there is more than may be. A reader that waits cannot be woken: it is left behind when ctx ends,
// and ends with the process.
func readStdin(ctx context.Context, in io.Reader, what string, most int64, hint string) (string, error) {
	type answer struct {
		data []byte
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		data, err := io.ReadAll(io.LimitReader(in, most+1))
		got <- answer{data, err}
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case r := <-got:
		switch {
		case r.err != nil:
			return "", &exitError{code: exitIO, what: "read " + what + " from stdin: " + r.err.Error(), err: r.err}
		case int64(len(r.data)) > most:
			return "", &exitError{code: exitInput, what: fmt.Sprintf("%s on stdin: more than %d MiB", what, most>>20), hint: hint}
		}
		return string(r.data), nil
	}
}

// readFile reads a file that a flag names: one that goes along with the prompt, say.
func (a *app) readFile(flag, name string) (string, error) {
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(a.cwd, path)
	}
	info, err := os.Stat(path)
	if err != nil {
		code := exitIO
		if errors.Is(err, fs.ErrNotExist) {
			code = exitMissing
		}
		return "", &exitError{code: code, what: fmt.Sprintf("%s %s: %v", flag, name, err), err: err}
	}
	if !info.Mode().IsRegular() || info.Size() > maxPrompt {
		return "", &exitError{code: exitInput, what: fmt.Sprintf("%s %s: only regular files of at most %d MiB can be given along", flag, name, maxPrompt>>20)}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", &exitError{code: exitIO, what: fmt.Sprintf("%s %s: %v", flag, name, err), err: err}
	}
	if !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		return "", &exitError{code: exitInput, what: fmt.Sprintf("%s %s: the file is not text in UTF-8", flag, name), hint: "only texts can be given along"}
	}
	return string(data), nil
}

// checkRules refuses rules of --allow that say something else than what is allowed.
func checkRules(rules []string) error {
	for _, text := range rules {
		r, err := policy.ParseRule(text)
		var wrong *policy.RuleError
		switch {
		case errors.As(err, &wrong):
			e := usage("--allow: %v", wrong)
			e.hint = "a rule is TOOL or TOOL(PATTERN), for example 'exec(go test*)' or 'write_file(docs/**)'"
			if caret := caretBelow(text, wrong.At); caret != "" {
				e.hint = caret + "\n" + e.hint
			}
			return e
		case err != nil:
			return fmt.Errorf("read rule %q: %w", text, err)
		case r.Action != policy.Allow:
			e := usage("--allow %q: this rule does not allow", text)
			e.hint = "rules that deny stand in the configuration, below approvals.rules"
			return e
		}
	}
	return nil
}

// prepare settles what a new session is made with. Nothing is written yet.
func (r *runner) prepare(ctx context.Context, loaded *config.Loaded) error {
	if err := checkRules(r.flags.allow); err != nil {
		return err
	}
	addr, real, err := r.a.folder(r.flags.dir)
	if err != nil {
		return err
	}
	name := r.flags.model
	if loaded.Config.Server.URL != "" { // agents and models are those of the server
		if err := r.a.answers(ctx, loaded); err != nil {
			return err
		}
	} else {
		if err := checkAgent(loaded, r.flags.agent); err != nil {
			return err
		}
		if name, err = r.a.chooseModel(ctx, loaded, r.models, r.flags.model, r.flags.agent); err != nil {
			return err
		}
	}
	rules, err := configRules(loaded)
	if err != nil {
		return err
	}
	trust, err := r.a.settleTrust(ctx, addr, real, r.flags.trust)
	if err != nil {
		return err
	}
	r.input = messages.NewID(messages.InputPrefix)
	r.create = &messages.CreateSession{
		SessionId: messages.NewID(messages.SessionPrefix), Agent: r.flags.agent, Model: name, Rules: r.flags.allow,
		Persist:    persistPolicy(loaded),
		NoInput:    r.a.flags.noInput || !r.a.inTerm || !r.a.errTerm,
		Ask:        r.a.canAsk(),
		Workspaces: []*messages.WorkspaceSpec{{Uri: addr.Canonical, Trust: trust, Primary: true, Isolate: r.flags.isolate}},
		First:      &messages.SubmitInput{InputId: r.input, Parts: r.parts, People: r.a.people()},
	}
	if r.flags.budget != "" {
		amounts, err := parseAmounts("troupe run: --budget", r.flags.budget)
		if err != nil {
			return err
		}
		r.create.Budget = &messages.Budget{Most: amounts, Pause: loaded.Config.Budgets.OnExceed == "pause", Answer: loaded.Config.Budgets.Answer}
	}
	if err := r.attachments(); err != nil {
		return err
	}
	r.announce(real, trust, append(rules, r.flags.allow...))
	r.announceLoss(r.create.GetPersist())
	if isOffline(name) {
		r.scripted(name)
	}
	return nil
}

// checkAgent refuses a profile that nobody defined.
func checkAgent(loaded *config.Loaded, name string) error {
	if _, known := loaded.Config.Agents[name]; known || name == "" || name == "default" {
		return nil
	}
	names, listed := []string{"default"}, "default"
	for _, n := range slices.Sorted(maps.Keys(loaded.Config.Agents)) {
		names = append(names, n)
		if n != "default" {
			listed += "\n" + n
		}
		if what := loaded.Config.Agents[n].Description; what != "" {
			listed += ": " + what
		}
	}
	e := &exitError{code: exitConfig, what: fmt.Sprintf("agent %q is not configured", name), hint: "define it below agents: in the configuration; there are:\n" + listed}
	if near := config.Near(name, names); len(near) > 0 {
		e.hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return e
}

func persistPolicy(loaded *config.Loaded) messages.Persist_Policy {
	return messages.Persist_Policy(messages.Persist_Policy_value[strings.ToUpper(loaded.Config.Data.Persist)])
}

// announceLoss says what a crash may lose, when it may lose anything.
func (r *runner) announceLoss(p messages.Persist_Policy) {
	switch p {
	case messages.Persist_MESSAGE:
	case messages.Persist_TASK:
		r.a.note("troupe: data.persist is task: while nobody watches the session, a crash may lose the turn under way; never a prompt, nor what a tool changed")
	case messages.Persist_MANUAL:
		r.a.note("troupe: data.persist is manual: while nobody watches the session, a crash may lose its newest turn; never a prompt, nor what a tool changed")
	}
}

// announce says first which trust the folder has and what follows from it.
func (r *runner) announce(dir string, trust messages.Trust_Level, rules []string) {
	allow, strict := parted(rules)
	if trust == messages.Trust_FULL {
		but := ""
		if strict != "" {
			but = ", but for: " + visible(strict)
		}
		r.a.note("troupe: %s is trusted (full): every tool runs unasked%s", visible(dir), but)
		return
	}
	what := fmt.Sprintf("troupe: %s is restricted: %s", visible(dir), r.questions())
	if r.create == nil {
		r.a.note("%s; a session keeps what it may do: begin a new one with --allow RULE (such as '@read') or --trust full to allow more", what)
		return
	}
	allowed := visible(cmp.Or(allow, "nothing"))
	if strict != "" {
		allowed += ", but for: " + visible(strict)
	}
	what += fmt.Sprintf("; allowed beforehand: %s; allow more with --allow RULE (such as '@read'), --trust full, or: troupe trust %s", allowed, visible(dir))
	r.a.note("%s", what)
}

// parted are the rules that allow, and those that ask or deny, as lists for people.
func parted(rules []string) (allow, strict string) {
	var both [2][]string
	for _, text := range rules {
		i := 0
		if rule, err := policy.ParseRule(text); err != nil || rule.Action != policy.Allow {
			i = 1
		}
		both[i] = append(both[i], text)
	}
	return strings.Join(both[0], ", "), strings.Join(both[1], ", ")
}

// questions says what becomes of what no rule allows. What the session was begun with decides where the prompt of this run does not.
func (r *runner) questions() string {
	switch {
	case r.create.GetAsk(), r.create == nil && r.parts != nil && r.a.canAsk():
		return "you are asked about what no rule allows"
	case r.create != nil, r.parts != nil && r.a.flags.noInput:
		return "what needs a question is refused, since nobody can be asked"
	}
	return "what needs a question waits for troupe approve if the session was begun where somebody can be asked, and else is refused"
}

// begin makes the session, or finds it and sends it the prompt. It may be done again in another
// house: the ids stay the same.
func (r *runner) begin(ctx context.Context, h *house) error {
	if r.repairs > 0 {
		return r.submit(ctx, h)
	}
	again := r.sent
	r.sent = true
	if r.create != nil {
		v, err := ask[*messages.SessionView](ctx, h, r.create)
		var refused *messages.Failure
		switch {
		case err == nil:
			r.session = v.GetId()
		case again && errors.As(err, &refused) && refused.GetCode() == messages.CodeAlreadyExists:
			r.session = r.create.GetSessionId()
		default:
			return err
		}
		r.log.session = r.session
		return nil
	}
	return r.resume(ctx, h)
}

// resume finds the session and what is to be waited for in it.
func (r *runner) resume(ctx context.Context, h *house) error {
	if r.session == "" {
		id, err := r.find(ctx, h)
		if err != nil {
			return err
		}
		r.session = id
	}
	shown, err := ask[*messages.Shown](ctx, h, &messages.Show{Id: r.session})
	if err != nil {
		return err
	}
	r.log.session = r.session
	s := shown.GetSession()
	for _, w := range s.GetWorkspaces() {
		if w.GetPrimary() {
			r.announce(w.GetUri(), w.GetTrust(), nil)
			r.announceLoss(s.GetPersist())
		}
	}
	if isOffline(s.GetModel()) {
		r.scripted(s.GetModel())
		if _, err := r.models.Resolve(s.GetModel()); err == nil && h.rt != nil { // else it is another process that plays it
			r.a.tellTorn(r.models, s.GetModel())
		}
	}
	if r.parts != nil {
		return r.submit(ctx, h)
	}
	return r.findTurn(ctx, h, shown)
}

// find gives the session of -s, or the newest one of the folder.
func (r *runner) find(ctx context.Context, h *house) (string, error) {
	if r.flags.session != "" {
		return r.flags.session, nil
	}
	addr, _, err := r.a.folder(r.flags.dir)
	if err != nil {
		return "", err
	}
	found, err := ask[*messages.Sessions](ctx, h, &messages.ListSessions{Folder: addr.Canonical, Limit: 1})
	if err != nil {
		return "", err
	}
	if len(found.GetSessions()) == 0 {
		return "", noSuchSession(r.flags)
	}
	return found.GetSessions()[0].GetId(), nil
}

// submit sends the prompt.
func (r *runner) submit(ctx context.Context, h *house) error {
	if r.input == "" {
		r.input = messages.NewID(messages.InputPrefix)
	}
	in, err := ask[*messages.InputReply](ctx, h, &messages.ToSession{SessionId: r.session, Command: &messages.ToSession_Submit{
		Submit: &messages.SubmitInput{InputId: r.input, Mode: r.mode, Parts: r.parts, People: r.a.people()},
	}})
	if err != nil {
		return err
	}
	if in.GetSeq() > 0 {
		r.after = in.GetSeq() - 1
	}
	return nil
}

// findTurn settles what is finished or shown again: the newest input that has not had its turn, else
// the last turn.
func (r *runner) findTurn(ctx context.Context, h *house, shown *messages.Shown) error {
	staged := int32(0)
	children := make(map[string]bool) // what they do is a part of others' turns
	for _, w := range shown.GetSession().GetWorkers() {
		if children[w.GetId()] = w.GetParent() != ""; !children[w.GetId()] {
			staged += w.GetStaged()
		}
	}
	turns := slices.DeleteFunc(slices.Clone(shown.GetTurns()), func(t *messages.TurnView) bool { return children[t.GetWorkerId()] })
	open := len(turns) == 0 || turns[len(turns)-1].GetOutcome() == ""
	if staged > 0 || open {
		in, err := ask[*messages.Inputs](ctx, h, &messages.ToSession{SessionId: r.session, Command: &messages.ToSession_ListInputs{ListInputs: &messages.ListInputs{}}})
		if err != nil {
			return err
		}
		if all := in.GetInputs(); len(all) > 0 {
			r.input = all[len(all)-1].GetInputId()
			return nil
		}
	}
	if len(turns) == 0 {
		return &exitError{code: exitMissing, what: fmt.Sprintf("session %s has no turn yet", r.session), hint: "give it a prompt"}
	}
	r.turn = turns[len(turns)-1].GetTurnId()
	return nil
}
