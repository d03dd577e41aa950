package build

import (
	"bytes"
	"encoding/json"
	"time"
)

// document is the text of a pipeline, as docs/pipelines.md describes it.
type document struct {
	Version     int               `json:"version"`
	Name        string            `json:"name"`
	Description string            `json:"description,omitempty"`
	Inputs      named[paramDoc]   `json:"inputs,omitzero"`
	Env         []string          `json:"env,omitempty"`
	Defaults    *defaultsDoc      `json:"defaults,omitempty"`
	Budget      *budgetDoc        `json:"budget,omitempty"`
	Workspace   *workspaceDoc     `json:"workspace,omitempty"`
	Agents      named[profileDoc] `json:"agents,omitzero"`
	Limits      *limitsDoc        `json:"limits,omitempty"`
	Steps       []*stepDoc        `json:"steps"`
	Outputs     named[string]     `json:"outputs,omitzero"`
}

// named keeps the order in which names were given.
type named[V any] struct {
	names  []string
	values map[string]V
}

// IsZero leaves it out where there is nothing.
func (n named[V]) IsZero() bool { return len(n.names) == 0 }

// MarshalJSON writes an object.
func (n named[V]) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, name := range n.names {
		if i > 0 {
			b.WriteByte(',')
		}
		for j, part := range []any{name, n.values[name]} {
			text, err := plain(part)
			if err != nil {
				return nil, err
			}
			if j > 0 {
				b.WriteByte(':')
			}
			b.Write(text)
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// plain is JSON as people read it.
func plain(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

type paramDoc struct {
	Type        string `json:"type"`
	Description string `json:"description,omitempty"`
	Required    bool   `json:"required,omitempty"`
	Default     any    `json:"default,omitempty"`
}

type profileDoc struct {
	System string   `json:"system,omitempty"`
	Model  string   `json:"model,omitempty"`
	Tools  []string `json:"tools"`
}

type defaultsDoc struct {
	Model   string    `json:"model,omitempty"`
	Timeout span      `json:"timeout,omitzero"`
	Retry   *retryDoc `json:"retry,omitempty"`
}

type budgetDoc struct {
	USD      float64 `json:"usd,omitempty"`
	Tokens   int64   `json:"tokens,omitempty"`
	Wall     span    `json:"wall,omitzero"`
	OnExceed string  `json:"on_exceed,omitempty"`
}

type workspaceDoc struct {
	Root  string `json:"root,omitempty"`
	Trust string `json:"trust,omitempty"`
}

type limitsDoc struct {
	Concurrency int    `json:"concurrency,omitempty"`
	Rate        string `json:"rate,omitempty"`
}

type retryDoc struct {
	Max     int      `json:"max"`
	Backoff string   `json:"backoff,omitempty"`
	Initial span     `json:"initial,omitzero"`
	On      []string `json:"on,omitempty"`
}

type stepDoc struct {
	ID           string         `json:"id"`
	Needs        []string       `json:"needs,omitempty"`
	When         string         `json:"when,omitempty"`
	ForEach      string         `json:"foreach,omitempty"`
	Key          string         `json:"key,omitempty"`
	Concurrency  int            `json:"concurrency,omitempty"`
	Repeat       *repeatDoc     `json:"repeat,omitempty"`
	Agent        string         `json:"agent,omitempty"`
	Parallel     []string       `json:"parallel,omitempty"`
	Group        []string       `json:"group,omitempty"`
	Rounds       int            `json:"rounds,omitempty"`
	Until        string         `json:"until,omitempty"`
	Tool         string         `json:"tool,omitempty"`
	Human        *humanDoc      `json:"human,omitempty"`
	Nested       string         `json:"pipeline,omitempty"`
	Model        string         `json:"model,omitempty"`
	Prompt       string         `json:"prompt,omitempty"`
	Conversation string         `json:"conversation,omitempty"`
	With         map[string]any `json:"with,omitempty"`
	Output       *outputDoc     `json:"output,omitempty"`
	OnError      string         `json:"on_error,omitempty"`
	Quorum       int            `json:"quorum,omitempty"`
	Retry        *retryDoc      `json:"retry,omitempty"`
	Timeout      span           `json:"timeout,omitzero"`
	Approve      *approveDoc    `json:"approve,omitempty"`
	Budget       *budgetDoc     `json:"budget,omitempty"`
}

type repeatDoc struct {
	Until string `json:"until"`
	Max   int    `json:"max,omitempty"`
}

type outputDoc struct {
	Schema any `json:"schema"`
	Repair int `json:"repair,omitempty"`
}

type humanDoc struct {
	Message   string   `json:"message"`
	Show      any      `json:"show,omitempty"`
	Choices   []string `json:"choices,omitempty"`
	Timeout   span     `json:"timeout,omitzero"`
	OnTimeout string   `json:"on_timeout,omitempty"`
}

type approveDoc struct {
	Before    []string `json:"before,omitempty"`
	Message   string   `json:"message,omitempty"`
	Timeout   span     `json:"timeout,omitzero"`
	OnTimeout string   `json:"on_timeout,omitempty"`
}

// span is a time as pipelines write it.
type span time.Duration

// MarshalText writes it.
func (s span) MarshalText() ([]byte, error) { return []byte(time.Duration(s).String()), nil }
