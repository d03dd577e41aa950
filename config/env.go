package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

const envPrefix = "TROUPE_"

// alone are the variables that do not follow the rule PATH__TO__SETTING.
func alone() map[string]string {
	return map[string]string{"TROUPE_SERVER": "server.url", "TROUPE_DATA": "data.dir"} // TROUPE_MODEL follows it
}

// given are variables that troupe gives to its own children, and the token for a server: no settings, but no mistakes either.
func given() []string { return []string{"TROUPE_EXEC_ID", "TROUPE_TOKEN"} }

// environment reads the TROUPE_ variables. Empty ones count as not set.
type environment struct {
	root     *shape
	lower    []*layer
	layer    *layer
	problems Problems
	warnings []Warning
}

// decodeEnv makes a layer of the TROUPE_ variables. lower are the weaker layers: their map keys
// give a name such as TROUPE_PROVIDERS__MY_LAB__BASE_URL its spelling (my-lab).
func decodeEnv(env Env, known []string, cwd string, root *shape, lower []*layer) (*layer, Problems, []Warning) {
	e := &environment{root: root, lower: lower, layer: newLayer(FromEnvironment)}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		value := env[name]
		if !strings.HasPrefix(name, envPrefix) || value == "" || slices.Contains(given(), name) || slices.Contains(known, name) {
			continue
		}
		s, path, ok := e.find(name)
		if !ok {
			e.warnings = append(e.warnings, Warning{Text: fmt.Sprintf("environment %s: no setting has this name", printable(name)), Fix: e.suggest(name)})
			continue
		}
		set, problem := outside(s, path, value, cwd, Origin{Source: FromEnvironment, Name: name})
		if problem != nil {
			e.problems = append(e.problems, problem)
			continue
		}
		e.layer.settings[path] = set
	}
	return e.layer, e.problems, e.warnings
}

// outside makes a setting of a variable or a flag: lists are separated by commas, relative paths
// begin at the working directory.
func outside(s *shape, path, value, cwd string, origin Origin) (*setting, *Problem) {
	set := &setting{path: path, shape: s, text: value, origin: origin}
	values := []string{value}
	if s.kind == list {
		values = strings.Split(value, ",")
		set.list = values
	}
	for i, v := range values {
		v = strings.TrimSpace(v)
		if why, fix := s.refuse(v); why != "" {
			return nil, &Problem{What: path + ": " + why, Path: path, Origin: origin, Fix: fix}
		}
		if s.format == "path" && !fileAnchored(v) {
			v = filepath.Join(cwd, v)
		}
		values[i] = v
	}
	if s.kind != list {
		set.text = values[0]
	}
	return set, nil
}

// find gives the setting that a variable names.
func (e *environment) find(name string) (*shape, string, bool) {
	if path, ok := alone()[name]; ok {
		return at(e.root, path), path, true
	}
	var named [][2]string // the keys of mappings on the way
	s, path := e.root, ""
	for part := range strings.SplitSeq(strings.TrimPrefix(name, envPrefix), "__") {
		switch s.kind {
		case section:
			s = s.field(strings.ToLower(part))
			if s == nil {
				return nil, "", false
			}
			path = child(path, s.name)
		case mapping:
			key := e.spelling(path, part)
			if badName(path, key) != "" {
				return nil, "", false
			}
			s = s.elem
			named = append(named, [2]string{path, key})
			path = child(path, key)
		default:
			return nil, "", false
		}
	}
	if !s.kind.scalar() && s.kind != list {
		return nil, "", false
	}
	for _, n := range named {
		e.layer.name(n[0], n[1], Origin{Source: FromEnvironment, Name: name}, "")
	}
	return s, path, true
}

// spelling finds the key that a part of a variable's name stands for: one that a file defines, if
// it is the same but for case and signs, else the part in lower case.
func (e *environment) spelling(path, part string) string {
	for _, l := range e.lower {
		for _, key := range l.names[path] {
			if envSpelling(key) == strings.ToUpper(part) {
				return key
			}
		}
	}
	return strings.ToLower(part)
}

func envSpelling(key string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' {
			return r
		}
		return '_'
	}, strings.ToUpper(key))
}

// suggest names the variables that were probably meant.
func (e *environment) suggest(name string) string {
	var known []string
	e.root.visit("", func(path string, s *shape) {
		known = append(known, envName(path))
	})
	known = append(known, slices.Collect(maps.Keys(alone()))...)
	if near := Near(name, known); len(near) > 0 {
		return "did you mean " + strings.Join(near, " or ") + "?"
	}
	return "see troupe help environment"
}

// envName is the variable of a setting with a fixed name.
func envName(path string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "__"))
}

// visit calls fn for every setting with a fixed name, in order.
func (s *shape) visit(path string, fn func(path string, s *shape)) {
	for _, f := range s.fields {
		p := child(path, f.name)
		switch {
		case f.kind == section:
			f.visit(p, fn)
		case f.kind.scalar() || f.kind == list:
			fn(p, f)
		}
	}
}

// at finds the shape of a setting with a fixed name; nil if there is none.
func at(s *shape, path string) *shape {
	for name := range strings.SplitSeq(path, ".") {
		if s = s.field(name); s == nil {
			return nil
		}
	}
	return s
}

// decodeOpenAI makes a layer of the two variables that every OpenAI client knows. They define the
// provider openai; its address has a default only with a key.
func decodeOpenAI(env Env, root *shape) (*layer, Problems) {
	l := newLayer(FromOpenAI)
	var problems Problems
	put := func(name, field, value string) {
		origin := Origin{Source: FromOpenAI, Name: name}
		path := child("providers.openai", field)
		set, problem := outside(root.field("providers").elem.field(field), path, value, "/", origin)
		if problem != nil {
			problems = append(problems, problem)
			return
		}
		l.name("providers", "openai", origin, "")
		l.settings[path] = set
	}
	if v := env["OPENAI_BASE_URL"]; v != "" {
		put("OPENAI_BASE_URL", "base_url", v)
	}
	if env["OPENAI_API_KEY"] != "" {
		put("OPENAI_API_KEY", "api_key_env", "OPENAI_API_KEY")
	}
	return l, problems
}
