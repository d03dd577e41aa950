package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/client"
	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/tools/owner"
	"github.com/troupe-dev/troupe/workspace"
)

// attachFlags are the flags of `troupe attach`.
type attachFlags struct {
	session, as, trust string
	readOnly, steal    bool
	allow              []string
}

func newAttach(a *app) *cobra.Command {
	f := &attachFlags{}
	cmd := &cobra.Command{
		Use:   "attach DIR --session ID",
		Short: "Share a folder of this machine with a session of a server",
		Long: `Share a folder of this machine with a session, of the server that --server names or of the one that serves the data directory.

The folder becomes a workspace of the session: its calls are decided on there, and run here, by this command, which decides
again: by this machine's rules and the trust in the folder, and by you, where it asks. Nothing of this machine but the folder is shared.
stdout gets its address for each connection. It stays until Ctrl-C, and connects again when the connection is lost. What has run does not run again; what was cut
off in the middle is said to be unknown, and not repeated. Commands that agents leave running here outlive a lost connection, and end with this command.`,
		Args: exactly("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.attach(cmd.Context(), f, args[0]) },
	}
	sessionFlag(cmd, &f.session)
	cmd.Flags().StringVar(&f.as, "as", "", "`NAME` of this machine in the address, and of the folder in the session; the machine's host name without it")
	cmd.Flags().StringVar(&f.trust, "trust", "", "`LEVEL` of trust in the folder: full or restricted")
	cmd.Flags().BoolVar(&f.readOnly, "read-only", false, "let nothing be changed, and no commands run")
	cmd.Flags().BoolVar(&f.steal, "steal", false, "take the place of another program that shares the folder with the session; one of this machine is asked to end")
	cmd.Flags().StringArrayVar(&f.allow, "allow", nil, "`RULE` of what needs no question here; may be repeated")
	return cmd
}

// attach shares a folder until ctx ends.
func (a *app) attach(ctx context.Context, f *attachFlags, dir string) error {
	s, err := a.sharing(f, dir)
	if err != nil {
		return err
	}
	c, err := a.reach(ctx, s.loaded)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // nothing waits on it any more
	place, err := s.claim(ctx)
	if err != nil {
		return err
	}
	defer place.release() // when nothing of this program's runs any more
	defer context.AfterFunc(ctx, place.ending)()
	s.clearNotes(time.Now())
	ledger, err := tools.OpenLedger(s.ledgerDir(), time.Now)
	if err != nil {
		return &exitError{code: exitIO, what: err.Error(), err: err}
	}
	defer func() { _ = ledger.Close() }() // what is in there stays
	log, err := a.openLog(s.loaded)
	if err != nil {
		return err
	}
	defer func() { _ = log.close() }() // what is in there stays
	x, err := s.owner(ctx, ledger, log.logger)
	if err != nil {
		return err
	}
	defer x.Close()
	return s.own(ctx, c, x)
}

// sharing is a folder that is shared.
type sharing struct {
	a      *app
	f      *attachFlags
	loaded *config.Loaded
	addr   *workspace.Address // here
	dir    string
	uri    string // there
	name   string
	trust  messages.Trust_Level
	mode   string // where its commands run, as this machine's configuration says
	rules  []string
	offers []string // the tools of the folder, as this machine's configuration says; nil: all
	person person

	attachedOnce bool
}

// sharing reads what is to be shared, and how.
func (a *app) sharing(f *attachFlags, dir string) (*sharing, error) {
	if f.session == "" {
		e := usage("troupe attach: --session is missing")
		e.hint = "troupe ls sessions lists them"
		return nil, e
	}
	if err := errors.Join(oneOf("--trust", f.trust, []string{"full", "restricted"}), checkRules(f.allow)); err != nil {
		return nil, err
	}
	addr, real, err := a.folder(dir)
	if err != nil {
		return nil, err
	}
	loaded, err := a.load(real)
	if err != nil {
		return nil, err
	}
	s := &sharing{a: a, f: f, loaded: loaded, addr: addr, dir: real, trust: messages.Trust_RESTRICTED}
	if f.trust == "full" || f.trust == "" && a.trusted(addr) {
		s.trust = messages.Trust_FULL
	}
	if s.rules, err = configRules(loaded); err != nil {
		return nil, err
	}
	s.rules = append(s.rules, f.allow...)
	modes, offers, err := places(loaded)
	if err != nil {
		return nil, err
	}
	s.mode = actors.ConfiguredMode(modes, addr.Canonical)
	s.offers = actors.ConfiguredTools(offers, addr.Canonical)
	if s.offers != nil && len(s.tools()) == 0 {
		return nil, &exitError{code: exitConfig, what: "no tool is left for " + visible(real), hint: "workspaces.NAME.tools of the configuration names none that this command runs"}
	}
	if s.name, err = hostName(f.as); err != nil {
		return nil, err
	}
	there, err := workspace.Parse(s.name+":"+strings.TrimPrefix(addr.Canonical, workspace.LocalHost+":"), "")
	if err != nil {
		return nil, &exitError{code: exitInput, what: fmt.Sprintf("the folder cannot be called %s:...: %v", visible(s.name), err), hint: "name the machine with --as NAME", err: err}
	}
	if there.Host == workspace.LocalHost {
		return nil, &exitError{code: exitInput, what: "local is the name of the server's own machine", hint: "name this one with --as NAME"}
	}
	s.uri = there.Canonical
	s.person = person{a: a, place: s.uri, approved: make(map[string]*approvedHere)}
	return s, nil
}

// hostName is what this machine is called: as the flag says, else the first part of its host name.
func hostName(as string) (string, error) {
	if as != "" {
		return as, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", &exitError{code: exitInput, what: "this machine has no name: " + err.Error(), hint: "name it with --as NAME", err: err}
	}
	host, _, _ = strings.Cut(host, ".")
	return host, nil
}

// reach is the server, or who serves the data directory.
func (a *app) reach(ctx context.Context, loaded *config.Loaded) (*client.Client, error) {
	if loaded.Config.Server.URL != "" {
		return a.connect(ctx, loaded)
	}
	c, err := client.Dial(ctx, loaded.Config.Data.Dir)
	if errors.Is(err, client.ErrNoHolder) {
		return nil, &exitError{
			code: exitUnreachable, what: fmt.Sprintf("nobody serves the data directory %s", visible(loaded.Config.Data.Dir)), err: err,
			hint: "start it with: troupe serve\nor name a server: --server URL",
		}
	}
	return c, err
}

// ledgerDir is where it is kept what ran for the session in the folder.
func (s *sharing) ledgerDir() string {
	sum := sha256.Sum256([]byte(s.f.session + "\x00" + s.uri + "\x00" + s.addr.Canonical))
	return filepath.Join(s.loaded.Dirs.State, "owned", hex.EncodeToString(sum[:16]))
}

// jobsDir is where notes are kept about what calls left running there.
func (s *sharing) jobsDir() string { return s.ledgerDir() + ".jobs" }

// owner makes who runs the calls.
func (s *sharing) owner(ctx context.Context, ledger *tools.FileLedger, log *slog.Logger) (*owner.Owner, error) {
	s.sweep(ctx)
	box, err := s.sandbox(ctx)
	if err != nil {
		return nil, err
	}
	in := opening{loaded: s.loaded, dir: s.dir}
	envOf := s.a.callEnv(in)
	env, err := envOf(s.addr.ID(), nil, s.trust)
	if err != nil {
		return nil, err
	}
	hooks, err := s.a.commandHooks(in, box, envOf, log)
	if err != nil {
		return nil, err
	}
	before, after := s.around(hooks)
	return owner.New(owner.Options{
		Before: before, After: after,
		Folders: map[string]string{s.uri: s.dir}, Trust: s.trust, Ledger: ledger, Sandbox: box, Env: env,
		Temp: filepath.Join(s.loaded.Dirs.Cache, "tmp"), Redact: s.a.secrets.String, Allow: s.allow, Shows: s.shows, Ended: s.ended, Logger: log,
		Jobs: s.jobsDir(), MostJobs: int(s.loaded.Config.Limits.Jobs), JobEnded: s.jobEnded,
	})
}

// sandbox is what runs commands in the folder. One that is configured to have a container has that, or is not shared: elsewhere its commands would reach more.
func (s *sharing) sandbox(ctx context.Context) (tools.Sandbox, error) {
	hide := []string{s.loaded.Config.Data.Dir, s.loaded.Dirs.State}
	if s.mode != tools.ModeContainer || s.loaded.Config.Sandbox.Exec == tools.ModeContainer {
		return detectSandbox(ctx, s.loaded, hide...)
	}
	box, err := containers(s.loaded, hide...)(ctx)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, &exitError{
			code: exitConfig, what: fmt.Sprintf("the commands of %s run in a container, as workspaces.NAME.mode says, and none can be made: %v", visible(s.dir), err), err: err,
			hint: "install podman or docker, set sandbox.image, or say mode: local there",
		}
	}
	return box, nil
}

// around are this machine's own hooks around the calls that it runs: those of the server's configuration are the server's.
func (s *sharing) around(h troupe.Hooks) (before func(context.Context, *messages.Execute, *tools.Context) error, after func(context.Context, *messages.Execute, *tools.Context, *messages.ToolReply)) {
	call := func(m *messages.Execute, tc *tools.Context) troupe.Call {
		tc.WorkspaceID = s.addr.ID() // as this machine's configuration knows the folder
		return troupe.Call{Session: m.GetSessionId(), Worker: m.GetWorkerId(), Agent: m.GetAgent(), Tool: m.GetTool(), ExecID: m.GetExecId()}
	}
	if h.BeforeCall != nil {
		before = func(ctx context.Context, m *messages.Execute, tc *tools.Context) error {
			return h.BeforeCall(ctx, call(m, tc), tc, json.RawMessage(m.GetArguments()))
		}
	}
	if h.AfterCall != nil {
		after = func(ctx context.Context, m *messages.Execute, tc *tools.Context, r *messages.ToolReply) {
			h.AfterCall(ctx, call(m, tc), tc, r)
		}
	}
	return before, after
}

// sweep clears the folder of what a write left there that was cut off long ago.
func (s *sharing) sweep(ctx context.Context) {
	if s.f.readOnly {
		return
	}
	ws, err := workspace.Open(workspace.Options{Dir: s.dir, Address: s.addr, Trust: s.trust})
	if err != nil {
		return // the calls will say so
	}
	defer func() { _ = ws.Close() }() // nothing can be lost by it
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	if n, err := ws.RemoveStale(ctx, staleAfter, time.Now()); n > 0 || err != nil && ctx.Err() == nil {
		s.a.note("troupe: cleared the folder of %d files that a crash left", n)
	}
}

const (
	staleAfter = 10 * time.Minute // a write that was begun before is none that runs
	sweepTime  = 5 * time.Second
)

// own shares the folder over one connection after the other.
func (s *sharing) own(ctx context.Context, c *client.Client, x *owner.Owner) error {
	o := &client.Ownership{
		Session: s.f.session, Workspace: s.uri, Name: s.f.as, Trust: messages.TrustName(s.trust), Tools: s.tools(), Steal: s.f.steal,
		Client: messages.NewID("own_"), Program: "troupe attach", Owner: x, Stop: x.Close, Attached: s.attached,
		Refused: func(f *messages.ErrorFrame) { s.a.note("troupe: the server says: %s", visible(f.Message)) },
	}
	if s.a.canAsk() {
		o.Approve = s.person.approve
	}
	for wait := firstWait; ; {
		began := time.Now()
		err := c.Own(ctx, o)
		if ctx.Err() != nil { // that is how it ends
			s.a.note("troupe: %s is not shared any more", visible(s.dir))
			return nil //nolint:nilerr // the error says the same
		}
		var refused *messages.Failure
		switch {
		case errors.As(err, &refused) && refused.GetCode() != messages.CodeUnavailable:
			return err
		}
		o.Steal = o.Steal && !s.attachedOnce // then the place is its own
		if time.Since(began) > time.Minute {
			wait = firstWait
		}
		s.a.note("troupe: %s; it is tried again", visible(cmp.Or(err, client.ErrLost).Error()))
		t := time.NewTimer(wait/2 + rand.N(wait/2+1))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
		wait = min(2*wait, lastWait)
	}
}

// The pauses between two connections.
const (
	firstWait = 200 * time.Millisecond
	lastWait  = 15 * time.Second
)

// tools are those that the folder offers; nil: all.
func (s *sharing) tools() []string {
	if !s.f.readOnly && s.offers == nil {
		return nil
	}
	var out []string
	for _, t := range tools.Builtin() {
		spec := t.Spec()
		if !spec.NoWorkspace && (spec.Effect == messages.Effect_PURE || !s.f.readOnly) && actors.Offered(s.offers, spec, "") == nil {
			out = append(out, spec.Name)
		}
	}
	return out
}

func (s *sharing) attached(f *messages.AttachFrame) {
	s.attachedOnce = true
	what := "files may be read and changed, and commands run, as the trust in it says"
	switch {
	case s.f.readOnly:
		what = "files may be read; nothing is changed and no commands run"
	case s.trust == messages.Trust_FULL:
		what = "files are read and changed and commands run, unasked"
	}
	_, _ = fmt.Fprintln(s.a.out, visible(f.Workspace)) // for who waits for it; it may be gone
	s.a.note("troupe: shares %s with session %s, as %s (%s), and nothing else of this machine:\n  %s\n  Ctrl-C ends it", visible(s.dir), visible(s.f.session), visible(f.Workspace), visible(f.Trust), what)
}

// ended tells of a call that ran.
func (s *sharing) ended(m *messages.Execute, r *messages.ToolReply) {
	word := "done"
	if r.GetStatus() != messages.ToolFinished_OK {
		word = cmp.Or(r.GetErrorCode(), "failed")
	}
	s.a.note("troupe: %s %s: %s", visible(m.GetTool()), visible(shortened(m.GetArguments())), visible(word))
}

// jobEnded tells of a command that was left running.
func (s *sharing) jobEnded(j *messages.OwnedJob) {
	s.a.note("troupe: job %s (%s): %s", visible(j.GetJobId()), visible(shortened(j.GetCommand())), visible(j.GetNote()))
}

func shortened(text string) string {
	if r := []rune(text); len(r) > 120 {
		return string(r[:120]) + "..."
	}
	return text
}
