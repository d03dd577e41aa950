package main

import (
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
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/troupetest"
)

// testFlags are the flags of `troupe test`.
type testFlags struct {
	update bool
	model  string
	record string
}

func newTest(a *app) *cobra.Command {
	f := &testFlags{}
	cmd := &cobra.Command{
		Use:   "test FILE|DIR...",
		Short: "Play transcripts against an agent or a pipeline, and show what differs",
		Long: `Play transcripts against an agent or a pipeline of the configuration, and show what differs from what they say.

A transcript says what is asked and what should come: answers, calls of tools, their results, the outcome. The model is the script
that it names. It is played in a temporary folder and on a temporary data directory; questions are answered as it says, and nobody else
is asked. Of a folder every *.txt is played that lies in it or below, but for those in the folders that transcripts work in.
Exit 1 when something differs.

  troupe test examples/transcripts
  troupe test a.txt b.txt
  troupe test --update FILE      # write what comes into the file`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return nil
			}
			e := usage("troupe test: FILE is missing")
			e.hint = "name transcripts, such as examples/transcripts/reader.txt, or a folder of them"
			return e
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.test(cmd.Context(), f, args) },
	}
	cmd.Flags().BoolVar(&f.update, "update", false, "write what comes into the files, where it differs")
	cmd.Flags().StringVarP(&f.model, "model", "m", "", "`MODEL` instead of the one that a transcript names")
	recordFlag(cmd, &f.record)
	return formats(cmd, "text", "json", "yaml")
}

// testJSON is one transcript that was played.
type testJSON struct {
	File      string  `json:"file"`
	State     string  `json:"state"` // same, differs, updated, or error: it could not be played
	Exchanges int     `json:"exchanges"`
	Seconds   float64 `json:"seconds"`
	Scripted  bool    `json:"scripted"` // no language model was running
	Diff      string  `json:"diff,omitempty"`
	Error     string  `json:"error,omitempty"`
}

// test plays the files one after the other in one house, after all were read.
func (a *app) test(ctx context.Context, f *testFlags, args []string) error {
	var all []*troupetest.Transcript
	for _, arg := range args {
		some, err := readTranscripts(arg)
		if err != nil {
			return testError(err)
		}
		all = append(all, some...)
	}
	dir, err := os.MkdirTemp("", "troupe-test-")
	if err != nil {
		return &exitError{code: exitIO, what: "make a temporary folder: " + err.Error(), err: err}
	}
	out, err := a.playAll(ctx, f, all, dir)
	if rerr := os.RemoveAll(dir); rerr != nil {
		a.note("troupe: warning: %v", rerr)
	}
	if err != nil {
		return err
	}
	return a.testResult(out)
}

// readTranscripts reads a file, or those of a folder.
func readTranscripts(name string) ([]*troupetest.Transcript, error) {
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) && strings.ContainsAny(name, "*?["):
		return nil, &exitError{code: exitMissing, what: "no file is called " + name, hint: "nothing fits the pattern, or it is quoted: the shell expands patterns, and a folder stands for its *.txt", err: err}
	case err == nil && info.IsDir():
		all, err := transcriptsIn(name)
		if err == nil && len(all) == 0 {
			err = &exitError{code: exitMissing, what: "in " + name + " is no transcript", hint: "a transcript is a file *.txt: see docs/transcripts.md"}
		}
		return all, err
	}
	t, err := troupetest.ReadTranscript(name)
	if err != nil {
		return nil, err
	}
	return []*troupetest.Transcript{t}, nil
}

// transcriptsIn reads the *.txt of a folder, and then those below it. Folders that transcripts work in hold none, whichever is read first.
func transcriptsIn(dir string) (all []*troupetest.Transcript, err error) {
	names, err := textsIn(dir)
	if err != nil {
		return nil, err
	}
	read, faults := make(map[string]*troupetest.Transcript), make(map[string]error)
	var works []string
	for _, name := range names {
		t, err := troupetest.ReadTranscript(name)
		if read[name], faults[name] = t, err; err != nil || t.Folder == "" {
			continue
		}
		if work := t.Beside(t.Folder); !within(work, name) { // else it would be none itself
			works = append(works, work)
		}
	}
	for _, name := range names {
		switch {
		case slices.ContainsFunc(works, func(work string) bool { return within(work, name) }):
		case faults[name] != nil:
			return nil, faults[name]
		default:
			all = append(all, read[name])
		}
	}
	return all, nil
}

// textsIn finds the *.txt of a folder, and then those below it.
func textsIn(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var below []string
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		switch {
		case e.IsDir() && !strings.HasPrefix(e.Name(), "."):
			below = append(below, name)
		case e.Type().IsRegular() && filepath.Ext(e.Name()) == ".txt":
			names = append(names, name)
		}
	}
	for _, name := range below {
		more, err := textsIn(name)
		if err != nil {
			return nil, err
		}
		names = append(names, more...)
	}
	return names, nil
}

// within says whether a file lies in a folder or below it.
func within(dir, name string) bool {
	rel, err := filepath.Rel(dir, name)
	return err == nil && filepath.IsLocal(rel)
}

// testError is an error of a transcript, or of what it names.
func testError(err error) error {
	var bad *troupetest.TranscriptError
	switch {
	case !errors.As(err, &bad):
		return err
	case bad.Err != nil:
		if why := classify(bad.Err); why.code != exitFailed { // of what the transcript names
			return &exitError{code: why.code, what: err.Error(), hint: why.hint, err: err}
		}
	}
	return &exitError{code: exitInput, what: err.Error(), hint: "docs/transcripts.md has the format", err: err}
}

// playAll plays in a house that keeps everything in memory.
func (a *app) playAll(ctx context.Context, f *testFlags, all []*troupetest.Transcript, dir string) (out []testJSON, err error) {
	loaded, err := a.load("")
	if err != nil {
		return nil, err
	}
	loaded.Config.Data.Dir, loaded.Config.Data.Store = filepath.Join(dir, "data"), "memory"
	m := newModels(loaded, a.secrets)
	err = a.recorded(loaded, m, f.record, func() error {
		out, err = a.playWith(ctx, f, loaded, m, all, dir)
		return err
	})
	return out, err
}

func (a *app) playWith(ctx context.Context, f *testFlags, loaded *config.Loaded, m *models, all []*troupetest.Transcript, dir string) (out []testJSON, err error) {
	h, err := a.openAlone(ctx, opening{loaded: loaded, models: m, work: true, alone: true})
	if err != nil {
		return nil, err
	}
	h.note = a.note
	h.missing()
	err = h.during(ctx, func(ctx context.Context) error {
		out, err = a.playStaged(ctx, f, loaded, h, all, dir)
		return err
	})
	if cerr := h.close(ctx); err == nil && cerr != nil {
		a.note("troupe: warning: %v", cerr)
	}
	return out, err
}

// playStaged makes all stages before it plays, so that what is wrong is told at once and not after a while.
func (a *app) playStaged(ctx context.Context, f *testFlags, loaded *config.Loaded, h *house, all []*troupetest.Transcript, dir string) (out []testJSON, err error) {
	stages := make([]troupetest.Stage, len(all))
	for i, t := range all {
		if stages[i], err = a.stage(ctx, f, loaded, h.models, t, filepath.Join(dir, fmt.Sprint("work-", i))); err != nil {
			return nil, testError(err)
		}
	}
	for i, t := range all {
		j, err := a.playOne(ctx, f, h, t, stages[i])
		if err != nil {
			return nil, err
		}
		out = append(out, j)
		if err := os.RemoveAll(stages[i].Dir); err != nil {
			a.note("troupe: warning: %v", err)
		}
	}
	return out, nil
}

// playOne plays one transcript. That it could not be played is a result like others: the rest is played nevertheless.
func (a *app) playOne(ctx context.Context, f *testFlags, h *house, t *troupetest.Transcript, s troupetest.Stage) (testJSON, error) {
	j := testJSON{File: t.Name, State: "same", Exchanges: len(t.Exchanges)}
	h.models.restart() // what a script has counted for others is not this one's
	began := time.Now()
	p, err := t.Play(ctx, h.rt, s)
	j.Seconds = time.Since(began).Seconds()
	switch {
	case ctx.Err() != nil:
		return j, context.Cause(ctx)
	case err != nil:
		j.State, j.Error = "error", err.Error()
		return j, nil //nolint:nilerr // it stands in the result
	}
	j.Scripted, j.Diff = p.Scripted && byScript(t, s), p.Diff()
	switch {
	case j.Diff == "":
	case f.update:
		j.State, j.Diff = "updated", ""
		if err := os.WriteFile(t.Name, []byte(p.Text()), 0o644); err != nil { //nolint:gosec // a file of the user's, which was there
			return j, &exitError{code: exitIO, what: "write the transcript: " + err.Error(), err: err}
		}
	default:
		j.State = "differs"
	}
	return j, nil
}

// byScript says whether an agent was asked by way of a script: of a model that never answered, nothing else tells.
func byScript(t *troupetest.Transcript, s troupetest.Stage) bool {
	return t.Pipeline != "" && s.Model == "" || isOffline(s.Model)
}

// stage is the folder, the model and the pipeline that a transcript names, beside its file.
func (a *app) stage(ctx context.Context, f *testFlags, loaded *config.Loaded, m *models, t *troupetest.Transcript, dir string) (troupetest.Stage, error) {
	s := troupetest.Stage{Dir: dir}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return s, &exitError{code: exitIO, what: err.Error(), err: err}
	}
	if err := t.Furnish(dir); err != nil {
		return s, err
	}
	if err := testAgent(loaded, t); err != nil {
		return s, err
	}
	name := t.Model
	if f.model != "" {
		name = f.model
	} else if file, ok := strings.CutPrefix(name, config.Replay+"/"); ok && !filepath.IsAbs(file) {
		path, err := filepath.Abs(t.Beside(file))
		if err != nil {
			return s, err
		}
		name = config.Replay + "/" + path
	} else if namesScript(t) {
		path, err := filepath.Abs(t.Beside(name))
		if err != nil {
			return s, err
		}
		name = config.Scripted + "/" + path
	}
	var err error
	if name != "" || t.Pipeline == "" {
		if s.Model, err = a.chooseModel(ctx, loaded, m, name, t.Agent); err != nil {
			if f.model == "" && t.Model != "" {
				return s, t.Fault("model", t.Model, err, "")
			}
			return s, err
		}
	}
	if t.Pipeline != "" {
		if s.Plan, err = a.plan(ctx, t.Beside(t.Pipeline)); errors.Is(err, fs.ErrNotExist) {
			return s, t.Fault("pipeline", t.Pipeline, err, "")
		} else if err != nil {
			return s, err
		}
	}
	return s, t.Check(s)
}

// namesScript says whether a transcript's model is the file of a script: it ends like one, or is there. PROVIDER/NAME is neither.
func namesScript(t *troupetest.Transcript) bool {
	if t.Model == "" || isOffline(t.Model) {
		return false
	}
	ext := strings.ToLower(filepath.Ext(t.Model))
	info, err := os.Stat(t.Beside(t.Model))
	return ext == ".yaml" || ext == ".yml" || err == nil && info.Mode().IsRegular()
}

// testAgent refuses a profile that is not configured.
func testAgent(loaded *config.Loaded, t *troupetest.Transcript) error {
	known := slices.Collect(maps.Keys(loaded.Config.Agents))
	if t.Agent == "" || t.Agent == "default" || slices.Contains(known, t.Agent) {
		return nil
	}
	fix := "see `agents:` in the configuration"
	if near := config.Near(t.Agent, known); len(near) > 0 {
		fix = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return t.Fault("agent", t.Agent, errors.New("no such agent is configured"), fix)
}

// testResult says what came of all of them.
func (a *app) testResult(all []testJSON) error {
	differ, failed, scripted := 0, 0, true
	for _, j := range all {
		switch j.State {
		case "differs":
			differ++
		case "error":
			failed++
		}
		scripted = scripted && j.Scripted
	}
	err := a.emit(all, func(w io.Writer) error { return testText(w, a.styleFor(a.outTerm), all) })
	if scripted {
		a.note("troupe: no language model is running: the answers come from scripts or recordings")
	}
	switch {
	case err != nil:
		return err
	case differ > 0:
		return &exitError{code: exitFailed, what: fmt.Sprintf("%d of %s: something else came (- expected, + now)", differ+failed, count(len(all), "transcript")), hint: "if what came is right: troupe test --update FILE"}
	case failed > 0:
		return &exitError{code: exitFailed, what: fmt.Sprintf("%d of %s could not be played", failed, count(len(all), "transcript"))}
	}
	return nil
}

// testText is the result for people: a line for each transcript, and its difference.
func testText(w io.Writer, s style, all []testJSON) error {
	for _, j := range all {
		word := map[string]string{"same": s.good("ok"), "differs": s.bad("FAIL"), "error": s.bad("ERROR"), "updated": s.warn("written")}[j.State]
		if _, err := fmt.Fprintf(w, "%s %s: %s in %.1f s\n", word, visible(j.File), count(j.Exchanges, "exchange"), j.Seconds); err != nil {
			return err
		}
		if j.Error != "" {
			if _, err := fmt.Fprintln(w, visible(j.Error)); err != nil {
				return err
			}
		}
		for l := range strings.Lines(j.Diff) {
			l = strings.TrimSuffix(l, "\n")
			switch {
			case strings.HasPrefix(l, "- "):
				l = s.bad(l)
			case strings.HasPrefix(l, "+ "):
				l = s.good(l)
			}
			if _, err := fmt.Fprintln(w, l); err != nil {
				return err
			}
		}
	}
	return nil
}
