package config

import (
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/viper"
)

// delimiter separates levels in viper's keys. Its default, the dot, would split names.
const delimiter = "::"

// merger puts the layers, weakest first, on top of each other.
type merger struct {
	layers   []*layer
	home     string
	scalars  *viper.Viper
	settings []Setting
	problems Problems
}

// Setting is one value in force.
type Setting struct {
	Path   string // dotted; keys that are no plain words are quoted
	Value  string // as one would write it; secrets are redacted
	List   []string
	IsList bool
	Origin Origin

	kind    kind
	excerpt string
	def     string   // default, as one would write it
	later   []string // values that have no effect
	instead string   // what to use for them
}

// merge builds the configuration from the layers.
func merge(layers []*layer, root *shape, home string) (*Config, []Setting, Problems) {
	m := &merger{layers: layers, home: home, scalars: precedence(layers, root)}
	cfg := new(Config)
	m.section(root, "", reflect.ValueOf(cfg).Elem())
	return cfg, m.settings, m.problems
}

// precedence hands the settings with a fixed name to viper, which decides which layer wins.
//
// The environment goes in as the last of the configuration maps rather than through BindEnv:
// that one reads the environment of the process, and here it is a parameter.
func precedence(layers []*layer, root *shape) *viper.Viper {
	v := viper.NewWithOptions(viper.KeyDelimiter(delimiter))
	fixed := map[string]bool{}
	root.visit("", func(path string, s *shape) {
		if s.kind.scalar() {
			fixed[path] = true
			v.SetDefault(viperKey(path), s.def)
		}
	})
	for _, l := range layers {
		for path, set := range l.settings {
			switch {
			case !fixed[path]:
			case l.source == FromFlag:
				_ = v.BindFlagValue(viperKey(path), flagValue{set}) // fails for nil only
			default:
				_ = v.MergeConfigMap(nest(strings.Split(path, "."), set.text)) // never fails
			}
		}
	}
	return v
}

func viperKey(path string) string { return strings.ReplaceAll(path, ".", delimiter) }

// nest makes {a: {b: value}} of a.b.
func nest(path []string, value string) map[string]any {
	if len(path) == 1 {
		return map[string]any{path[0]: value}
	}
	return map[string]any{path[0]: nest(path[1:], value)}
}

// flagValue shows a setting to viper as a flag that was given.
type flagValue struct{ set *setting }

func (f flagValue) HasChanged() bool    { return true }
func (f flagValue) Name() string        { return f.set.origin.Name }
func (f flagValue) ValueString() string { return f.set.text }
func (f flagValue) ValueType() string   { return "string" }

// strongest gives the setting of the strongest layer, nil if none has one.
func (m *merger) strongest(path string) *setting {
	for _, l := range slices.Backward(m.layers) {
		if set := l.settings[path]; set != nil {
			return set
		}
	}
	return nil
}

// keys gives the keys of a mapping, or the places of entries, over all layers.
func (m *merger) keys(path string) []string {
	var out []string
	seen := map[string]bool{}
	for _, l := range m.layers {
		for _, key := range l.names[path] {
			if !seen[key] {
				seen[key], out = true, append(out, key)
			}
		}
	}
	return out
}

func (m *merger) section(s *shape, path string, into reflect.Value) {
	masked := m.masked(s, path)
	for _, f := range s.fields {
		p, v := child(path, f.name), into.Field(f.index)
		switch {
		case slices.Contains(masked, p):
		case f.kind == section:
			m.section(f, p, v)
		case f.kind == mapping:
			m.mapping(f, p, v)
		case f.kind == entries:
			m.entries(f, p, v)
		case f.kind == list:
			m.list(p, v)
		default:
			m.scalar(f, p, v)
		}
	}
}

// masked gives the settings of a section that a sibling excludes. Of those that exclude each
// other, the strongest layer's counts: a key file in the user's file and OPENAI_API_KEY in the
// environment are no contradiction. Two in one layer are.
func (m *merger) masked(s *shape, path string) []string {
	best := map[string]*setting{}
	var out []string
	for _, f := range s.fields {
		set := m.strongest(child(path, f.name))
		if f.only == "" || set == nil || set.text == "" && len(set.list) == 0 {
			continue
		}
		other := best[f.only]
		switch {
		case other == nil:
			best[f.only] = set
		case other.origin.Source == set.origin.Source:
			m.problems = append(m.problems, set.problem(set.path+" and "+other.path+" exclude each other", "keep one of them"))
		case other.origin.Source < set.origin.Source:
			out = append(out, other.path)
			best[f.only] = set
		default:
			out = append(out, set.path)
		}
	}
	return out
}

func (m *merger) mapping(s *shape, path string, into reflect.Value) {
	keys := m.keys(path)
	if len(keys) == 0 {
		return
	}
	out := reflect.MakeMapWithSize(s.typ, len(keys))
	for _, key := range keys {
		v := reflect.New(s.typ.Elem()).Elem()
		if s.elem.kind == section {
			m.section(s.elem, child(path, key), v)
		} else {
			m.scalar(s.elem, child(path, key), v)
		}
		out.SetMapIndex(reflect.ValueOf(key), v)
	}
	into.Set(out)
}

func (m *merger) entries(s *shape, path string, into reflect.Value) {
	for i, key := range m.keys(path) {
		v, from := reflect.New(s.typ.Elem()).Elem(), len(m.settings)
		m.section(s.elem, child(path, key), v)
		into.Set(reflect.Append(into, v))
		// Refused entries left holes in the numbering of the layers.
		shown := child(path, "["+strconv.Itoa(i)+"]")
		for j := range m.settings[from:] {
			set := &m.settings[from+j]
			set.Path = shown + strings.TrimPrefix(set.Path, child(path, key))
		}
	}
}

func (m *merger) list(path string, into reflect.Value) {
	set := m.strongest(path)
	if set == nil {
		return
	}
	values := make([]string, len(set.list))
	for i, v := range set.list {
		values[i] = m.expand(set.shape, v)
	}
	into.Set(reflect.ValueOf(values))
	m.settings = append(m.settings, Setting{Path: path, List: values, IsList: true, Origin: set.origin, kind: list, excerpt: set.excerpt, later: set.shape.later, instead: set.shape.instead})
}

func (m *merger) scalar(s *shape, path string, into reflect.Value) {
	value, out := s.def, Setting{Path: path, kind: s.kind, def: s.def, later: s.later, instead: s.instead}
	if set := m.strongest(path); set != nil {
		value, out.Origin, out.excerpt = set.text, set.origin, set.excerpt
	}
	if key := viperKey(path); m.scalars.IsSet(key) {
		value = m.scalars.GetString(key)
	}
	if value == "" && s.kind != text && s.kind != secret {
		return
	}
	value = m.expand(s, value)
	parsed, err := s.kind.parse(value)
	if err != nil { // every layer's value was held against its shape before
		m.problems = append(m.problems, &Problem{What: path + ": " + err.Error(), Path: path, Origin: out.Origin})
		return
	}
	into.Set(reflect.ValueOf(parsed).Convert(into.Type()))
	out.Value = show(parsed, value)
	m.settings = append(m.settings, out)
}

// expand replaces the ~ of a path by the home.
func (m *merger) expand(s *shape, value string) string {
	if s.format != "path" || value == "" {
		return value
	}
	if rest, ok := strings.CutPrefix(value, "~"); ok {
		return filepath.Join(m.home, rest)
	}
	return filepath.Clean(value)
}

// problem is a problem with this setting.
func (s *setting) problem(what, fix string) *Problem {
	return &Problem{What: what, Path: s.path, Origin: s.origin, Excerpt: s.excerpt, Fix: fix}
}
