package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
)

// show writes a value as one would write it into a file.
func show(v any, raw string) string {
	switch v := v.(type) {
	case time.Duration:
		return durationText(v)
	case Size:
		return v.String()
	case USD:
		return v.String()
	case Secret:
		return v.String()
	case int64:
		return strconv.FormatInt(v, 10)
	}
	return raw
}

// Any is the value for an encoder: numbers, booleans and lists as such, the rest as text.
func (s Setting) Any() any {
	switch {
	case s.IsList:
		return s.List
	case s.kind == boolean:
		return s.Value == "true"
	case s.kind == integer:
		if n, err := strconv.ParseInt(s.Value, 10, 64); err == nil {
			return n
		}
	}
	return s.Value
}

// Tree gives all settings as nested maps in their order, ready for a YAML or JSON encoder.
// Secrets are redacted.
func (l *Loaded) Tree() yaml.MapSlice {
	var root yaml.MapSlice
	for _, s := range l.settings {
		root = put(root, splitPath(s.Path), s.Any())
	}
	return root
}

// put sets a value below a path of nested maps. A place in a list is an element of a slice.
func put(m yaml.MapSlice, path []string, value any) yaml.MapSlice {
	i := 0
	for i < len(m) && m[i].Key != path[0] {
		i++
	}
	if i == len(m) {
		m = append(m, yaml.MapItem{Key: path[0]})
	}
	switch {
	case len(path) == 1:
		m[i].Value = value
	case strings.HasPrefix(path[1], "["):
		items, _ := m[i].Value.([]yaml.MapSlice)
		m[i].Value = putItem(items, path[1:], value)
	default:
		below, _ := m[i].Value.(yaml.MapSlice)
		m[i].Value = put(below, path[1:], value)
	}
	return m
}

// putItem sets a value in an element. Settings come in order: a place not seen before is the next.
func putItem(items []yaml.MapSlice, path []string, value any) []yaml.MapSlice {
	n, _ := strconv.Atoi(strings.Trim(path[0], "[]"))
	if n >= len(items) {
		items = append(items, nil)
		n = len(items) - 1
	}
	items[n] = put(items[n], path[1:], value)
	return items
}

// splitPath undoes child: models."gpt-4.1".price gives three keys.
func splitPath(path string) []string {
	var out []string
	for path != "" {
		switch path[0] {
		case '.':
			path = path[1:]
		case '"':
			quoted, err := strconv.QuotedPrefix(path)
			if err != nil {
				return append(out, path)
			}
			key, _ := strconv.Unquote(quoted) // a QuotedPrefix can be unquoted
			out, path = append(out, key), path[len(quoted):]
		case '[':
			end := strings.IndexByte(path, ']') + 1
			out, path = append(out, path[:end]), path[end:]
		default:
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			out, path = append(out, path[:end]), path[end:]
		}
	}
	return out
}

// String is the setting on one line, for people.
func (s Setting) String() string {
	if s.IsList {
		return fmt.Sprintf("%s = [%s]", s.Path, strings.Join(s.List, ", "))
	}
	return fmt.Sprintf("%s = %s", s.Path, strings.ReplaceAll(s.Value, "\n", `\n`))
}
