package tools

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

// Registry is a set of tools by name. It never changes, so that it is shared by all workers of
// a process without locks; a changed set is a new registry.
type Registry struct {
	tools map[string]Tool
	specs []*Spec // sorted by name
}

// NewRegistry makes a registry. It refuses two tools of one name, names that are not snake_case
// of at most 64 letters, and specs without a description, an object's schema or an effect class.
func NewRegistry(tools ...Tool) (*Registry, error) {
	r := &Registry{tools: make(map[string]Tool, len(tools)), specs: make([]*Spec, 0, len(tools))}
	for _, t := range tools {
		if t == nil || t.Spec() == nil {
			return nil, fmt.Errorf("register a tool: it is nil")
		}
		spec := t.Spec()
		if err := checkSpec(spec); err != nil {
			return nil, err
		}
		if r.tools[spec.Name] != nil {
			return nil, fmt.Errorf("register tool %s: there is one of that name already", spec.Name)
		}
		r.tools[spec.Name] = t
		r.specs = append(r.specs, spec)
	}
	slices.SortFunc(r.specs, func(a, b *Spec) int { return strings.Compare(a.Name, b.Name) })
	return r, nil
}

// Lookup finds a tool. Its error is tool_not_found with a near name, if any, in the detail
// `did_you_mean`.
func (r *Registry) Lookup(name string) (Tool, error) {
	if t := r.tools[name]; t != nil {
		return t, nil
	}
	err := ErrorNotFound(clip(name))
	if near := nearest(name, r.Names()); near != "" {
		err = err.With("did_you_mean", near)
	}
	return nil, err
}

// Names lists the tools, sorted.
func (r *Registry) Names() []string {
	names := make([]string, len(r.specs))
	for i, s := range r.specs {
		names[i] = s.Name
	}
	return names
}

// Defs lists what models are told of the allowed tools, sorted by name, since providers cache
// equal beginnings of prompts. nil allows all; names that are not registered are passed over.
func (r *Registry) Defs(allowed []string) []*Spec {
	if allowed == nil {
		return slices.Clone(r.specs)
	}
	defs := make([]*Spec, 0, min(len(allowed), len(r.specs)))
	for _, s := range r.specs {
		if slices.Contains(allowed, s.Name) {
			defs = append(defs, s)
		}
	}
	return defs
}

// Builtin returns the tools that every server has, sorted by name.
func Builtin() []Tool {
	all := []Tool{
		CreateDirectory(), DeleteFile(), EditFile(), Exec(), Fetch(), GitCommit(), GitDiff(), GitLog(), GitStatus(), Glob(), Grep(),
		JobKill(), JobList(), JobOutput(),
		ListFiles(), MoveFile(), ReadFile(), RequestWriteAccess(), Todo(), UpdateWorkspace(), WriteFile(),
	}
	for _, t := range all {
		t.Spec().NoTemp, t.Spec().builtin = t.Spec().Name != "exec", true
		_ = t.Spec().compile() // NewRegistry checks the schema again and says what is wrong
	}
	return all
}

// Restricted lists the tools that a Restricted workspace offers unless configured otherwise,
// sorted. What has an effect among them still asks.
func Restricted() []string {
	return []string{
		"create_directory", "edit_file", "git_diff", "git_log", "git_status", "glob", "grep", "list_files",
		"read_file", "request_write_access", "todo", "update_workspace", "write_file",
	}
}

func checkSpec(s *Spec) error {
	if len(s.Name) > 64 || !regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`).MatchString(s.Name) {
		return fmt.Errorf("register tool %q: its name is not snake_case of at most 64 letters", clip(s.Name))
	}
	if strings.TrimSpace(s.Description) == "" {
		return fmt.Errorf("register tool %s: it has no description", s.Name)
	}
	if s.Effect == messages.Effect_UNSPECIFIED {
		return fmt.Errorf("register tool %s: it has no effect class", s.Name)
	}
	if s.Timeout < 0 || s.Timeout > time.Hour {
		return fmt.Errorf("register tool %s: its timeout %v is not within an hour", s.Name, s.Timeout)
	}
	if _, err := parseSchema(s); err != nil {
		return fmt.Errorf("register tool %s: %w", s.Name, err)
	}
	return nil
}
