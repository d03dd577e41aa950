package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Names of providers that need no service and no entry: answers from a script, answers recorded.
const (
	Scripted = "scripted"
	Replay   = "replay"
)

// ErrNoModel means that nobody said which model to use. Ways to say it: NoModelHelp.
var ErrNoModel = errors.New("no model is configured")

// NoModelHelp are three ways to get a model, for people who have none yet.
const NoModelHelp = `three ways to get one:
  1. a key:      export OPENAI_API_KEY=...  and  troupe run -m openai/gpt-4.1-mini "..."
  2. a local one: export OPENAI_BASE_URL=http://127.0.0.1:11434/v1  and  troupe run -m openai/llama3.2 "..."
  3. none at all: troupe tour  shows an agent at work with a scripted model`

// UnknownModelError is a name that no model has.
type UnknownModelError struct {
	Name string
	Near []string // names that were probably meant
	Why  string
}

// Error says what was asked for and what was probably meant.
func (e *UnknownModelError) Error() string {
	s := fmt.Sprintf("unknown model %q: %s", printable(e.Name), e.Why)
	if len(e.Near) > 0 {
		s += "; did you mean " + quoteAll(e.Near, " or ") + "?"
	}
	return s
}

// Model is a model that can be called, with what is known about it.
type Model struct {
	Alias    string // the entry of models it was asked by or matches; "" for none
	Provider string // key of Config.Providers, or scripted or replay
	Name     string // the provider's own name; for scripted and replay, the script or file
	Service  Provider
	Price    Price
	Context  int64  // tokens; 0: unknown
	XML      bool   // tools are offered to it in text
	Fallback string // the model that stands in for it; "": none
}

// String is PROVIDER/NAME.
func (m Model) String() string { return m.Provider + "/" + m.Name }

// Offline tells whether no language model runs when it answers.
func (m Model) Offline() bool { return m.Provider == Scripted || m.Provider == Replay }

// Resolve finds a model by alias or PROVIDER/NAME; the name may hold further slashes. "" is the
// default model. Errors are ErrNoModel and *UnknownModelError.
func (c *Config) Resolve(name string) (Model, error) {
	if name == "" {
		name = c.Model
	}
	if name == "" {
		return Model{}, ErrNoModel
	}
	if a, ok := c.Models[name]; ok {
		return c.service(name, Model{Alias: name, Provider: a.Provider, Name: a.Name, Price: a.Price, Context: a.Context, XML: a.Protocol == "xml", Fallback: a.Fallback})
	}
	provider, own, slash := strings.Cut(name, "/")
	if !slash || provider == "" || own == "" {
		return Model{}, &UnknownModelError{Name: name, Near: Near(name, c.modelNames()), Why: "it is neither an alias of models nor PROVIDER/NAME"}
	}
	m := Model{Provider: provider, Name: own}
	for _, alias := range slices.Sorted(maps.Keys(c.Models)) {
		if a := c.Models[alias]; a.Provider == provider && a.Name == own {
			m.Alias, m.Price, m.Context, m.XML, m.Fallback = alias, a.Price, a.Context, a.Protocol == "xml", a.Fallback
			break
		}
	}
	return c.service(name, m)
}

// service adds the provider of a model.
func (c *Config) service(asked string, m Model) (Model, error) {
	if m.Offline() {
		return m, nil
	}
	p, ok := c.Providers[m.Provider]
	if !ok {
		err := &UnknownModelError{Name: asked, Why: fmt.Sprintf("no provider is called %q", printable(m.Provider))}
		for _, near := range Near(m.Provider, c.providerNames()) {
			err.Near = append(err.Near, near+"/"+m.Name)
		}
		if m.Provider == "openai" {
			err.Why += "; OPENAI_API_KEY or OPENAI_BASE_URL define it"
		}
		return Model{}, err
	}
	m.Service = p
	return m, nil
}

func (c *Config) providerNames() []string {
	return append(slices.Sorted(maps.Keys(c.Providers)), Scripted, Replay)
}

// modelNames are the names a model can be asked by, as far as they are known.
func (c *Config) modelNames() []string {
	var out []string
	for _, alias := range slices.Sorted(maps.Keys(c.Models)) {
		a := c.Models[alias]
		out = append(out, alias, a.Provider+"/"+a.Name)
	}
	return append(out, c.Model)
}
