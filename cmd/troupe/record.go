package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/model/replay"
)

// recordFlag declares --record.
func recordFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "record", "", "record in `FILE` what models are asked and answer, to be played with -m replay/FILE; added to what is there")
}

// recorded does work of which the model calls are recorded, if a file is named. Nothing may have been looked up in m before. The recording is all that
// this process asks meanwhile, also for commands that work in it.
func (a *app) recorded(loaded *config.Loaded, m *models, file string, work func() error) error {
	if file == "" {
		return work()
	}
	if loaded.Config.Server.URL != "" {
		return notRecorded(fmt.Sprintf("the server %s asks the models", loaded.Config.Server.URL))
	}
	path := file
	if !filepath.IsAbs(path) {
		path = filepath.Join(a.cwd, path)
	}
	r, err := replay.Open(path, a.secrets)
	switch {
	case errors.As(err, new(*fs.PathError)):
		return &exitError{code: exitIO, what: "--record: " + err.Error(), err: err}
	case err != nil:
		return &exitError{code: exitInput, what: "--record: " + err.Error(), hint: "name another file, or remove this one first", err: err}
	case r.Torn != "":
		a.note("troupe: warning: %s; it is taken off", visible(r.Torn))
	}
	m.recorder = r
	err = work()
	if cerr := r.Close(); cerr != nil {
		a.note("troupe: warning: the recording is not complete: %s", visible(cerr.Error()))
		if err == nil {
			err = silent(exitIO)
		}
		return err
	}
	switch n := r.Calls(); {
	case n > 0:
		a.note("troupe: %s recorded in %s; play it with: -m replay/%s", count(n, "model call"), visible(file), visible(file))
	case err == nil:
		a.note("troupe: no model was asked: nothing is recorded in %s", visible(file))
	}
	return err
}

// recordable refuses a house in which another process asks the models.
func recordable(o opening, h *house) error {
	if o.models == nil || o.models.recorder == nil || h.client == nil {
		return nil
	}
	return notRecorded(fmt.Sprintf("process %d has the data directory %s, and asks the models", h.holder, h.data))
}

func notRecorded(why string) *exitError {
	return &exitError{code: exitUsage, what: "--record: " + why + ": only the process that asks can record", hint: "record on a data directory of its own, with --data DIR"}
}

// replay finds the recording of a file. Its models have the window of those that were recorded: what is sent depends on it.
func (m *models) replay(name string) (offline, error) {
	r, err := loadRecording(name)
	if err != nil {
		return offline{}, err
	}
	return offline{model: r.Model(replay.Options{Redact: m.secrets}), window: r.Window(), torn: r.Torn}, nil
}

// tellTorn says, once and before anything is asked, that the recording which a model plays is not whole.
func (a *app) tellTorn(m *models, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.scripts[name]
	if known.torn == "" {
		return
	}
	a.note("troupe: warning: %s", visible(known.torn))
	known.torn = ""
	m.scripts[name] = known
}

// loadRecording reads a recording.
func loadRecording(name string) (*replay.Recording, error) {
	r, err := replay.Load(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		err = &exitError{code: exitInput, what: err.Error(), hint: "see docs/recordings.md for the format", err: err}
	}
	return r, err
}

// isOffline says whether a model, by its full name, is a script or a recording.
func isOffline(name string) bool {
	return strings.HasPrefix(name, config.Scripted+"/") || isReplay(name)
}

func isReplay(name string) bool { return strings.HasPrefix(name, config.Replay+"/") }

// answersOf says that no language model is running, and what answers as far as the model's name tells.
func answersOf(name string) string {
	what := "a script or a recording"
	switch {
	case isReplay(name):
		what = "a recording"
	case isOffline(name):
		what = "a script"
	}
	return "troupe: no language model is running: the answers come from " + what
}
