package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model/script"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/workspace"
)

const (
	tourName   = "tour"                           // of the script and the folder below the cache
	tourModel  = config.Scripted + "/" + tourName // any other troupe knows it, too, and can go on where this one was killed
	tourPrompt = "The tests of this package fail. Find out why, and repair it."
	tourSlots  = 8 // tours at the same time
)

func newTour(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "tour",
		Short: "The first thing to type: see an agent repair a small package",
		Long: `The first thing to type: see an agent repair a small package.

The tools, the journal and the HTTP calls are real, and so is the go command that tests the package.
The model is a script that this process serves on the loopback interface: no key is needed and no
language model is running. Everything happens in a copy below the XDG cache directory.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.tour(cmd.Context()) },
	}
}

// tour serves the script, opens a house of its own and runs the turn there.
func (a *app) tour(ctx context.Context) error {
	if _, err := exec.LookPath("go"); err != nil {
		return &exitError{code: exitMissing, what: "the tour needs the go command, which is not on PATH", hint: "see https://go.dev/dl/; or look at: troupe run -m scripted/echo \"hello\"", err: err}
	}
	s, err := script.Builtin(tourName)
	if err != nil {
		return err
	}
	l, err := listen(ctx, "loopback", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = serve(ctx, l, script.Handler(s, script.ServeOptions{})) // what fails there fails the turn, which says so
	}()
	defer func() {
		cancel()
		<-served
	}()
	loaded, err := a.tourConfig()
	if err != nil {
		return err
	}
	h, dir, err := a.openTour(ctx, loaded, map[string]string{tourName: baseURL(l)})
	if err != nil {
		return err
	}
	t, err := a.playTour(ctx, h, dir)
	if cerr := h.close(ctx); err == nil && cerr != nil {
		a.note("troupe: warning: %v", cerr)
	}
	if err != nil {
		return err
	}
	return a.tourResult(t, h.data)
}

// tourConfig is the defaults, with the script as the model: nothing that is configured on this
// machine, no key and no address of a real model, plays a part.
func (a *app) tourConfig() (*config.Loaded, error) {
	env := config.Env{}
	for name, value := range a.env {
		if !strings.HasPrefix(name, "OPENAI_") && !strings.HasPrefix(name, "TROUPE_") {
			env[name] = value
		}
	}
	env["XDG_CONFIG_HOME"] = filepath.Join(config.Dirs(a.env).Cache, tourName, "none")
	loaded, err := config.Load(config.Options{Env: env, System: "-"})
	if err != nil {
		return nil, err
	}
	loaded.Config.Model = tourModel
	return loaded, nil
}

// openTour takes the first free slot below the cache: a data directory, and a fresh copy of the
// package beside it. Slots stay, so that the build cache of the next tour is warm.
func (a *app) openTour(ctx context.Context, loaded *config.Loaded, served map[string]string) (*house, string, error) {
	base := filepath.Join(loaded.Dirs.Cache, tourName)
	for i := 1; i <= tourSlots; i++ {
		slot := filepath.Join(base, strconv.Itoa(i))
		loaded.Config.Data.Dir = filepath.Join(slot, "data")
		m := newModels(loaded, a.secrets)
		m.served = served
		in := opening{
			loaded: loaded, models: m, work: true, alone: true,
			env: []string{"GOFLAGS=-count=1", "GOPROXY=off", "GOTOOLCHAIN=local"}, // a cached result would show nothing
		}
		h, err := a.openAlone(ctx, in)
		if errors.Is(err, persistence.ErrLocked) {
			continue
		}
		if err != nil {
			return nil, "", err
		}
		dir := filepath.Join(slot, "broken")
		if err := copyTour(dir); err != nil {
			return nil, "", errors.Join(&exitError{code: exitIO, what: "copy the package: " + err.Error(), err: err}, h.close(ctx))
		}
		return h, dir, nil
	}
	return nil, "", &exitError{code: exitAgain, what: fmt.Sprintf("%d tours are running below %s", tourSlots, base), hint: "wait for one to end"}
}

// openAlone opens a data directory that is not shared. A held one is ErrLocked.
func (a *app) openAlone(ctx context.Context, in opening) (*house, error) {
	log, err := a.openLog(in.loaded)
	if err != nil {
		return nil, err
	}
	options, err := a.runtimeOptions(ctx, in, log.logger)
	var h *house
	if err == nil {
		h, err = hold(ctx, in, options, log)
	}
	if err != nil {
		return nil, errors.Join(storeError(err), log.close())
	}
	return h, nil
}

func copyTour(dir string) error {
	files, err := script.TourFiles()
	if err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// playTour runs the turn in the copy, which is trusted because we made it.
func (a *app) playTour(ctx context.Context, h *house, dir string) (*turnLog, error) {
	addr, _, err := workspace.Local(dir)
	if err != nil {
		return nil, err
	}
	if err := a.say("no language model is running: the answers come from a script, over real HTTP on the loopback interface"); err != nil {
		return nil, err
	}
	if err := a.say("a small Go package with a failing test is in " + dir + "\n\n> " + tourPrompt); err != nil {
		return nil, err
	}
	input := messages.NewID(messages.InputPrefix)
	r := &runner{a: a, flags: &runFlags{}, view: &tourView{out: a.out}, log: &turnLog{}, told: true, input: input}
	r.create = &messages.CreateSession{
		SessionId: messages.NewID(messages.SessionPrefix), Model: tourModel, NoInput: true,
		Workspaces: []*messages.WorkspaceSpec{{Uri: addr.Canonical, Trust: messages.Trust_FULL, Primary: true}},
		First:      &messages.SubmitInput{InputId: input, Parts: []*messages.Part{{Kind: &messages.Part_Text{Text: tourPrompt}}}},
	}
	err = h.during(ctx, func(ctx context.Context) error { return r.inHouse(ctx, h) })
	if err != nil && ctx.Err() != nil {
		hint := "the tour can be taken again: troupe tour"
		if r.begun {
			hint = fmt.Sprintf("go on with: troupe --data %s run -s %s\nor take it again: troupe tour", h.data, r.session)
		}
		return nil, &exitError{code: exitInterrupted, what: "interrupted", hint: hint}
	}
	return r.log, err
}

// tourResult says what came of it. It went well only if the last test did.
func (a *app) tourResult(t *turnLog, data string) error {
	passed := false
	for _, c := range t.calls {
		if c.name == "exec" {
			passed = c.status == "ok" && exitCodeIn(c.meta) == 0 && strings.Contains(c.content, "ok  \t")
		}
	}
	for _, c := range t.calls {
		if c.diff == "" {
			continue
		}
		if err := a.say("\nwhat it changed:\n" + strings.TrimRight(harmless(c.diff), "\n")); err != nil {
			return err
		}
	}
	if err := a.say("\nno language model is running, and none was asked"); err != nil {
		return err
	}
	a.note("look at the session:  troupe --data %s show %s", data, t.session)
	a.note(`with a real model:    troupe run "..." -C DIR -m PROVIDER/NAME   (see troupe run without -m)`)
	a.note("%s", t.summary())
	if !passed || t.outcome != "done" {
		return &exitError{code: exitFailed, what: fmt.Sprintf("the tests do not pass: the turn ended with outcome %s %s", t.outcome, oneLine(t.reason, 500)), hint: "see troupe doctor"}
	}
	return nil
}
