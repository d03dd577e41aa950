package main

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/model/openai"
	"github.com/troupe-dev/troupe/model/replay"
	"github.com/troupe-dev/troupe/model/script"
)

// models finds models by the names of the configuration. The client of a provider, and a script,
// is made at first use and then shared. It is safe for concurrent use.
type models struct {
	loaded   *config.Loaded
	keys     *keys
	secrets  *config.Redactor
	recorder *replay.Recorder // of every call; nil: nothing is recorded. It is set before anything is looked up

	mu      sync.Mutex
	clients map[string]*openai.Model         // by provider
	scripts map[string]offline               // by full name
	known   map[string]*troupe.ResolvedModel // what was found, by the name that was asked for: each call asks several times

	served map[string]string // base URLs of built-in scripts that this process serves, by name: they are asked there
}

func newModels(loaded *config.Loaded, secrets *config.Redactor) *models {
	return &models{loaded: loaded, keys: newKeys(loaded, secrets), secrets: secrets, clients: map[string]*openai.Model{}, scripts: map[string]offline{}}
}

// Providers lists every provider that Resolve may name.
func (m *models) Providers() []string {
	return append(slices.Sorted(maps.Keys(m.loaded.Config.Providers)), config.Scripted, config.Replay)
}

// Resolve finds a model by alias or PROVIDER/NAME; "" is the default one. Its errors are those of
// config.Config.Resolve, and of the script or the recording.
func (m *models) Resolve(name string) (*troupe.ResolvedModel, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.known[name]; r != nil {
		return r, nil
	}
	r, err := m.find(name)
	if err != nil {
		return r, err
	}
	if m.known == nil || len(m.known) >= mostKnown {
		m.known = map[string]*troupe.ResolvedModel{}
	}
	m.known[name] = r
	return r, nil
}

// mostKnown bounds what is remembered: anybody may ask for any name.
const mostKnown = 256

func (m *models) find(name string) (*troupe.ResolvedModel, error) {
	found, err := m.loaded.Config.Resolve(name)
	if err != nil {
		return nil, err
	}
	context := found.Context
	if context == 0 && !found.Offline() {
		context = model.Window(found.Name)
	}
	r := &troupe.ResolvedModel{Provider: found.Provider, Name: found.Name, Context: context, XML: found.XML, Fallback: found.Fallback, Price: troupe.Price{
		Input: dollars(found.Price.Input), Output: dollars(found.Price.Output), Cached: dollars(found.Price.Cached),
	}}
	if r.Free = found.Offline(); r.Free {
		var window int64
		if r.Model, window, err = m.offline(found); r.Context == 0 {
			r.Context = window
		}
	} else {
		r.Model, err = m.client(found)
	}
	if err == nil && m.recorder != nil {
		r.Model = m.recorder.Model(r.Model, r.Context)
	}
	return r, err
}

// offline is a script or a recording, with the window of the models in its place; 0: not known.
type offline struct {
	model  model.Model
	window int64
	torn   string // that a recording ends in the middle of a record; "" when it was told
}

func (m *models) offline(found config.Model) (model.Model, int64, error) {
	known, ok := m.scripts[found.String()]
	if ok {
		return known.model, known.window, nil
	}
	var err error
	if found.Provider == config.Replay {
		known, err = m.replay(found.Name)
	} else {
		known.model, err = m.script(found)
	}
	if err != nil {
		return nil, 0, err
	}
	m.scripts[found.String()] = known
	return known.model, known.window, nil
}

func dollars(u config.USD) float64 { return float64(u) / 1e6 }

func (m *models) script(found config.Model) (model.Model, error) {
	if url := m.served[found.Name]; url != "" {
		c, err := openai.New(clientOptions(config.Provider{BaseURL: url, API: "chat"}))
		if err != nil {
			return nil, err
		}
		m.clients[found.String()] = c
		return c, nil
	}
	s, err := loadScript(found.Name)
	if err != nil {
		return nil, err
	}
	return s.Model(), nil
}

// restart has scripts and recordings begin anew: how often a reply has failed, and what was played, is forgotten.
func (m *models) restart() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.scripts {
		if m.served[strings.TrimPrefix(name, config.Scripted+"/")] == "" {
			delete(m.scripts, name)
		}
	}
	m.known = nil
}

// loadScript finds a built-in script, or reads the one in a file: what has a separator or ends
// like YAML is a file.
func loadScript(name string) (*script.Script, error) {
	if isScriptFile(name) {
		s, err := script.Load(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			err = &exitError{code: exitInput, what: err.Error(), hint: "see docs/scripts.md for the format", err: err}
		}
		return s, err
	}
	if !slices.Contains(script.Builtins(), name) {
		e := &config.UnknownModelError{Name: config.Scripted + "/" + name, Why: "there is no such built-in script, and a file is named as in scripted/path.yaml"}
		for _, near := range config.Near(name, script.Builtins()) {
			e.Near = append(e.Near, config.Scripted+"/"+near)
		}
		return nil, e
	}
	return script.Builtin(name)
}

func isScriptFile(name string) bool {
	ext := strings.ToLower(filepath.Ext(name))
	return strings.ContainsAny(name, `/\`) || ext == ".yaml" || ext == ".yml"
}

func (m *models) client(found config.Model) (model.Model, error) {
	if known := m.clients[found.Provider]; known != nil {
		return m.keyed(found, known), nil
	}
	o, provider := clientOptions(found.Service), found.Provider
	o.APIKey = func(ctx context.Context) (string, error) {
		key, err := m.keys.key(ctx, provider)
		return key.Reveal(), err
	}
	c, err := openai.New(o)
	if err != nil {
		return nil, err
	}
	m.clients[provider] = c
	return m.keyed(found, c), nil
}

func clientOptions(p config.Provider) openai.Options {
	return openai.Options{BaseURL: p.BaseURL, API: p.API, RequestTimeout: p.Limits.Timeout, MaxAttempts: int(p.Limits.Attempts)}
}

// keyed adds the second try of a provider whose key comes from a command.
func (m *models) keyed(found config.Model, c *openai.Model) model.Model {
	if found.Service.APIKeyCommand == "" {
		return c
	}
	return &keyed{Model: c, provider: found.Provider, keys: m.keys}
}

// Close ends idle connections.
func (m *models) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, c := range m.clients {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// namedModel is chooseModel where a server may do the work: which models it has, what they are called and whether it has their keys only it knows.
func (a *app) namedModel(ctx context.Context, loaded *config.Loaded, m *models, asked, agent string) (string, error) {
	if loaded.Config.Server.URL != "" {
		return asked, nil
	}
	return a.chooseModel(ctx, loaded, m, asked, agent)
}

// chooseModel is the model of a new session by its alias, whose price counts, or its full name: -m, else the agent's, else the
// default. It fails before anything is written when the model cannot be called: no name, no such
// provider or script, no key.
func (a *app) chooseModel(ctx context.Context, loaded *config.Loaded, m *models, asked, agent string) (string, error) {
	name := asked
	if name == "" {
		name = loaded.Config.Agents[agent].Model
	}
	found, err := loaded.Config.Resolve(name)
	if err != nil {
		return "", err
	}
	if (found.Provider == config.Replay || found.Provider == config.Scripted && isScriptFile(found.Name)) && !filepath.IsAbs(found.Name) {
		found.Name = filepath.Join(a.cwd, found.Name) // it must be found again from elsewhere
	}
	if _, err := m.Resolve(found.String()); err != nil {
		return "", err
	}
	a.tellTorn(m, found.String())
	if !found.Offline() {
		if _, err := m.keys.key(ctx, found.Provider); err != nil {
			return "", err
		}
	}
	if name == "" {
		name = loaded.Config.Model
	}
	if name == found.Alias && !found.Offline() { // a script's file must be found again from elsewhere
		return name, nil
	}
	return found.String(), nil
}
