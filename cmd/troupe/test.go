package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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
}

func newTest(a *app) *cobra.Command {
	f := &testFlags{}
	cmd := &cobra.Command{
		Use:   "test FILE...",
		Short: "Play transcripts against an agent or a pipeline, and show what differs",
		Long: `Play transcripts against an agent or a pipeline of the configuration, and show what differs from what they say.

A transcript says what is asked and what should come: answers, calls of tools, their results, the outcome. The model is the script
that it names. It is played in a temporary folder and on a temporary data directory; nobody is asked anything.
Exit 1 when something differs.

  troupe test examples/transcripts/*.txt
  troupe test --update FILE      # write what comes into the file`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return nil
			}
			e := usage("troupe test: FILE is missing")
			e.hint = "name transcripts, such as examples/transcripts/greeter.txt"
			return e
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.test(cmd.Context(), f, args) },
	}
	cmd.Flags().BoolVar(&f.update, "update", false, "write what comes into the files, where it differs")
	cmd.Flags().StringVarP(&f.model, "model", "m", "", "`MODEL` instead of the one that a transcript names")
	return formats(cmd, "text", "json", "yaml")
}

// testJSON is one transcript that was played.
type testJSON struct {
	File      string  `json:"file"`
	State     string  `json:"state"` // same, differs or updated
	Exchanges int     `json:"exchanges"`
	Seconds   float64 `json:"seconds"`
	Scripted  bool    `json:"scripted"` // no language model was running
	Diff      string  `json:"diff,omitempty"`
}

// test plays the files one after the other in one house, after all were read.
func (a *app) test(ctx context.Context, f *testFlags, files []string) error {
	var all []*troupetest.Transcript
	for _, file := range files {
		t, err := troupetest.ReadTranscript(file)
		if err != nil {
			return testError(err)
		}
		all = append(all, t)
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

// testError is an error of a transcript, or of what it names.
func testError(err error) error {
	var bad *troupetest.TranscriptError
	switch {
	case errors.As(err, &bad):
		return &exitError{code: exitInput, what: err.Error(), hint: "docs/transcripts.md has the format", err: err}
	case errors.Is(err, fs.ErrNotExist):
		return &exitError{code: exitMissing, what: err.Error(), err: err}
	}
	return err
}

// playAll plays in a house that keeps everything in memory.
func (a *app) playAll(ctx context.Context, f *testFlags, all []*troupetest.Transcript, dir string) (out []testJSON, err error) {
	loaded, err := a.load("")
	if err != nil {
		return nil, err
	}
	loaded.Config.Data.Dir, loaded.Config.Data.Store = filepath.Join(dir, "data"), "memory"
	m := newModels(loaded, a.secrets)
	h, err := a.openAlone(ctx, opening{loaded: loaded, models: m, work: true, alone: true})
	if err != nil {
		return nil, err
	}
	h.note = a.note
	h.missing()
	err = h.during(ctx, func(ctx context.Context) error {
		for i, t := range all {
			j, err := a.playOne(ctx, f, loaded, h, t, filepath.Join(dir, fmt.Sprint("work-", i)))
			if err != nil {
				return err
			}
			out = append(out, j)
		}
		return nil
	})
	if cerr := h.close(ctx); err == nil && cerr != nil {
		a.note("troupe: warning: %v", cerr)
	}
	return out, err
}

func (a *app) playOne(ctx context.Context, f *testFlags, loaded *config.Loaded, h *house, t *troupetest.Transcript, dir string) (testJSON, error) {
	j := testJSON{File: t.Name, State: "same", Exchanges: len(t.Exchanges)}
	s, err := a.stage(ctx, f, loaded, h.models, t, dir)
	if err != nil {
		return j, testError(err)
	}
	began := time.Now()
	p, err := t.Play(ctx, h.rt, s)
	if err != nil {
		return j, err
	}
	j.Seconds, j.Scripted, j.Diff = time.Since(began).Seconds(), p.Scripted, p.Diff()
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

// stage is the folder, the model and the pipeline that a transcript names, beside its file.
func (a *app) stage(ctx context.Context, f *testFlags, loaded *config.Loaded, m *models, t *troupetest.Transcript, dir string) (troupetest.Stage, error) {
	s := troupetest.Stage{Dir: dir}
	beside := func(name string) string { return filepath.Join(filepath.Dir(t.Name), filepath.FromSlash(name)) }
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return s, &exitError{code: exitIO, what: err.Error(), err: err}
	}
	if t.Folder != "" {
		if err := os.CopyFS(dir, os.DirFS(beside(t.Folder))); err != nil {
			return s, fmt.Errorf("%s: folder: %w", t.Name, err)
		}
	}
	name := t.Model
	if f.model != "" {
		name = f.model
	} else if isScriptFile(name) && !strings.HasPrefix(name, config.Scripted+"/") {
		path, err := filepath.Abs(beside(name))
		if err != nil {
			return s, err
		}
		name = config.Scripted + "/" + path
	}
	var err error
	if name != "" || t.Pipeline == "" {
		if s.Model, err = a.chooseModel(ctx, loaded, m, name, t.Agent); err != nil {
			return s, err
		}
	}
	if t.Pipeline == "" {
		return s, nil
	}
	if s.Plan, err = a.plan(beside(t.Pipeline)); err != nil {
		return s, err
	}
	if _, err := s.Plan.Root.Set(t.Set); err != nil {
		return s, &exitError{code: exitInput, what: t.Name + ": set: " + err.Error(), err: err}
	}
	return s, nil
}

// testResult says what came of all of them.
func (a *app) testResult(all []testJSON) error {
	differ, scripted := 0, true
	for _, j := range all {
		if j.State == "differs" {
			differ++
		}
		scripted = scripted && j.Scripted
	}
	err := a.emit(all, func(w io.Writer) error {
		for _, j := range all {
			word := map[string]string{"same": "ok", "differs": "FAIL", "updated": "written"}[j.State]
			if _, err := fmt.Fprintf(w, "%s %s: %s in %.1f s\n%s", word, visible(j.File), count(j.Exchanges, "exchange"), j.Seconds, j.Diff); err != nil {
				return err
			}
		}
		return nil
	})
	if scripted {
		a.note("troupe: no language model is running: the answers come from scripts")
	}
	if err == nil && differ > 0 {
		return &exitError{code: exitFailed, what: fmt.Sprintf("%d of %s: something else came (- expected, + now)", differ, count(len(all), "transcript")), hint: "if what came is right: troupe test --update FILE"}
	}
	return err
}
