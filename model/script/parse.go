package script

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/parser"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/model/canned"
)

// The document as it is written. docs/scripts.md is its reference.
type document struct {
	Name        string    `yaml:"name"`
	Description string    `yaml:"description"`
	Rules       []rawRule `yaml:"rules"`
}

type rawRule struct {
	Agent     string     `yaml:"agent"`
	Match     string     `yaml:"match"`
	Turn      int        `yaml:"turn"`
	Step      *int       `yaml:"step"`
	AfterTool *rawAfter  `yaml:"after_tool"`
	Reply     *rawReply  `yaml:"reply"`
	Steps     []rawReply `yaml:"steps"`
}

type rawAfter struct {
	Name     string `yaml:"name"`
	Contains string `yaml:"contains"`
}

type rawReply struct {
	Text          string    `yaml:"text"`
	Reasoning     string    `yaml:"reasoning"`
	ToolCalls     []rawCall `yaml:"tool_calls"`
	Delay         string    `yaml:"delay"`
	ChunkDelay    string    `yaml:"chunk_delay"`
	ChunkSize     int       `yaml:"chunk_size"`
	Usage         *rawUsage `yaml:"usage"`
	Finish        string    `yaml:"finish"`
	Fail          *rawFail  `yaml:"fail"`
	TruncateAfter *int      `yaml:"truncate_after"`
	Garbage       bool      `yaml:"garbage"`
}

type rawCall struct {
	Name      string `yaml:"name"`
	Arguments any    `yaml:"arguments"`
	ID        string `yaml:"id"`
}

type rawUsage struct {
	Input     int64 `yaml:"input"`
	Output    int64 `yaml:"output"`
	Cached    int64 `yaml:"cached"`
	Reasoning int64 `yaml:"reasoning"`
}

type rawFail struct {
	Status     int    `yaml:"status"`
	Class      string `yaml:"class"`
	Message    string `yaml:"message"`
	RetryAfter string `yaml:"retry_after"`
	Times      int    `yaml:"times"`
}

// source knows where in the file a value stands.
type source struct {
	name string
	data []byte
}

// Parse reads a script; name is what errors call the file, and without its extension the
// script's name when the document gives none. Every error begins with name:line:column.
func Parse(name string, data []byte) (*Script, error) {
	src := source{name, data}
	var doc document
	dec := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict())
	if err := dec.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return nil, src.syntax(err)
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: more than one document in the file", name)
	}
	base := filepath.Base(name)
	s := &Script{Name: doc.Name, Description: strings.TrimSpace(doc.Description), src: src}
	if s.Name == "" {
		s.Name = strings.TrimSuffix(base, filepath.Ext(base))
	}
	// The name goes into an HTTP header and into what surfaces print.
	if !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`).MatchString(s.Name) {
		return nil, src.at("$.name", "the name %q may hold only letters, digits, dot, dash and underscore", s.Name)
	}
	if len(doc.Rules) == 0 {
		return nil, src.at("$", "there are no rules")
	}
	for i := range doc.Rules {
		r, err := src.rule(s, fmt.Sprintf("$.rules[%d]", i), &doc.Rules[i])
		if err != nil {
			return nil, err
		}
		s.rules = append(s.rules, r)
	}
	return s, nil
}

// syntax gives an error of the YAML reader the form of ours.
func (src *source) syntax(err error) error {
	var ye yaml.Error
	if !errors.As(err, &ye) || ye.GetToken() == nil {
		return fmt.Errorf("%s: %w", src.name, err)
	}
	pos := ye.GetToken().Position
	text := ye.FormatError(false, true)
	if _, excerpt, ok := strings.Cut(text, "\n"); ok {
		return fmt.Errorf("%s:%d:%d: %s\n%s", src.name, pos.Line, pos.Column, ye.GetMessage(), excerpt)
	}
	return fmt.Errorf("%s:%d:%d: %s", src.name, pos.Line, pos.Column, ye.GetMessage())
}

// at makes an error about the value at a path of the document.
func (src *source) at(path, format string, a ...any) error {
	line, column := 1, 1
	if file, err := parser.ParseBytes(src.data, 0); err == nil {
		if p, err := yaml.PathString(path); err == nil {
			if node, err := p.FilterFile(file); err == nil && node.GetToken() != nil {
				line, column = node.GetToken().Position.Line, node.GetToken().Position.Column
			}
		}
	}
	return fmt.Errorf("%s:%d:%d: %s", src.name, line, column, fmt.Sprintf(format, a...))
}

func (src *source) rule(s *Script, path string, raw *rawRule) (rule, error) {
	r := rule{agent: raw.Agent, turn: raw.Turn, step: -1}
	var err error
	if raw.Match != "" {
		if r.match, err = regexp.Compile(raw.Match); err != nil {
			return r, src.at(path+".match", "the pattern does not compile: %v", err)
		}
	}
	if raw.Turn < 0 {
		return r, src.at(path+".turn", "turns are counted from 1")
	}
	if raw.Step != nil {
		if r.step = *raw.Step; r.step < 0 {
			return r, src.at(path+".step", "steps are counted from 0")
		}
	}
	if raw.AfterTool != nil {
		r.after, r.tool, r.holds = true, raw.AfterTool.Name, raw.AfterTool.Contains
	}
	switch {
	case (raw.Reply == nil) == (len(raw.Steps) == 0):
		return r, src.at(path, "a rule has either a reply or steps")
	case raw.Reply != nil:
		p, err := src.reply(s, path+".reply", raw.Reply, r.match)
		r.plays = append(r.plays, p)
		return r, err
	case raw.Step != nil:
		return r, src.at(path+".step", "a rule with steps cannot have a step of its own")
	}
	r.steps = true
	for i := range raw.Steps {
		p, err := src.reply(s, fmt.Sprintf("%s.steps[%d]", path, i), &raw.Steps[i], r.match)
		if err != nil {
			return r, err
		}
		r.plays = append(r.plays, p)
	}
	return r, nil
}

func (src *source) reply(s *Script, path string, raw *rawReply, match *regexp.Regexp) (reply, error) {
	p := reply{chunk: raw.ChunkSize, finish: raw.Finish, cut: -1, garbage: raw.Garbage, slot: s.replies, path: path}
	s.replies++
	var err error
	if p.delay, err = src.duration(path+".delay", raw.Delay); err != nil {
		return p, err
	}
	if p.pause, err = src.duration(path+".chunk_delay", raw.ChunkDelay); err != nil {
		return p, err
	}
	if raw.ChunkSize < 0 {
		return p, src.at(path+".chunk_size", "the size is below 0")
	}
	if p.text, err = compile(raw.Text, match); err != nil {
		return p, src.at(path+".text", "%v", err)
	}
	if p.reasoning, err = compile(raw.Reasoning, match); err != nil {
		return p, src.at(path+".reasoning", "%v", err)
	}
	for i := range raw.ToolCalls {
		c, err := src.call(fmt.Sprintf("%s.tool_calls[%d]", path, i), &raw.ToolCalls[i], match)
		if err != nil {
			return p, err
		}
		p.calls = append(p.calls, c)
	}
	if raw.Usage != nil {
		p.usage = &messages.Usage{InputTokens: raw.Usage.Input, OutputTokens: raw.Usage.Output, CachedTokens: raw.Usage.Cached, ReasoningTokens: raw.Usage.Reasoning}
	}
	if raw.TruncateAfter != nil {
		p.cut = max(0, *raw.TruncateAfter)
	}
	switch raw.Finish {
	case "", "stop", "tool_calls", "length", "content_filter":
	default:
		return p, src.at(path+".finish", "finish is stop, tool_calls, length or content_filter, not %q", raw.Finish)
	}
	if raw.Fail != nil {
		if p.fail, err = src.failure(s, path+".fail", raw.Fail); err != nil {
			return p, err
		}
	}
	silent := raw.Text == "" && raw.Reasoning == "" && len(raw.ToolCalls) == 0
	if silent && raw.Fail == nil && !raw.Garbage && raw.TruncateAfter == nil && raw.Finish == "" {
		return p, src.at(path, "the reply says nothing: it needs text, tool_calls, fail or finish")
	}
	return p, nil
}

// duration reads "1.5s" or "200ms"; nothing is 0.
func (src *source) duration(path, s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, src.at(path, "%q is no duration as 200ms or 1.5s", s)
	}
	return d, nil
}

func (src *source) call(path string, raw *rawCall, match *regexp.Regexp) (call, error) {
	c := call{name: raw.Name, id: raw.ID}
	if raw.Name == "" {
		return c, src.at(path, "a tool call needs a name")
	}
	path += ".arguments"
	if text, ok := raw.Arguments.(string); ok {
		t, err := compile(text, match)
		if err != nil {
			return c, src.at(path, "%v", err)
		}
		c.args.raw = &t
		return c, nil
	}
	if raw.Arguments == nil {
		raw.Arguments = map[string]any{}
	}
	fixed := true
	var err error
	if c.args.tree, err = plant(raw.Arguments, match, &fixed); err != nil {
		return c, src.at(path, "%v", err)
	}
	b, err := canned.JSON(raw.Arguments)
	if err != nil {
		return c, src.at(path, "%v", err)
	}
	if fixed {
		c.args.fixed = b
	}
	return c, nil
}

// plant copies a tree with its varying strings compiled.
func plant(tree any, match *regexp.Regexp, fixed *bool) (any, error) {
	switch x := tree.(type) {
	case string:
		if !strings.Contains(x, "${") {
			return x, nil
		}
		*fixed = false
		return compile(x, match)
	case map[string]any:
		out := make(map[string]any, len(x))
		for k, e := range x {
			p, err := plant(e, match, fixed)
			if err != nil {
				return nil, err
			}
			out[k] = p
		}
		return out, nil
	case []any:
		out := make([]any, len(x))
		for i, e := range x {
			p, err := plant(e, match, fixed)
			if err != nil {
				return nil, err
			}
			out[i] = p
		}
		return out, nil
	}
	return tree, nil
}

func (src *source) failure(s *Script, path string, raw *rawFail) (*failure, error) {
	f := &failure{Failure: canned.Failure{Class: model.Class(raw.Class), Status: raw.Status, Message: raw.Message}, times: raw.Times, slot: s.failing}
	var err error
	if f.After, err = src.duration(path+".retry_after", raw.RetryAfter); err != nil {
		return nil, err
	}
	if f.Class == "" {
		if raw.Status < 400 || raw.Status > 599 {
			return nil, src.at(path, "a failure needs a class, or a status from 400 to 599")
		}
		f.Class = canned.ClassOf(raw.Status)
	} else if _, ok := canned.StatusOf(f.Class); !ok {
		return nil, src.at(path+".class", "%q is no class of error", raw.Class)
	}
	if f.Status == 0 {
		f.Status, _ = canned.StatusOf(f.Class)
	}
	if f.Message == "" {
		f.Message = "the script says so"
	}
	if f.times < 0 {
		return nil, src.at(path+".times", "times is below 0")
	}
	s.failing++
	return f, nil
}
