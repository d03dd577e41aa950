// Package xmltools lets a model without function calling use tools: they are described in the system
// prompt, calls are XML elements in the model's text, and results come back as text. What the rest of the
// program sees are the same calls as of any other model.
//
// A call is an element named like a tool, at the beginning of a line and outside of code fences, with one
// element for each argument:
//
//	<read_file>
//	<path>main.go</path>
//	</read_file>
//
// Values are literal: nothing is escaped, one line break after the opening and one before the closing tag do not
// count. What is no string by the tool's schema is written as JSON. A value that holds its own closing tag, followed
// by what looks like the next argument, stands in <![CDATA[ ... ]]>.
package xmltools

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

const manual = `

# How to call tools

You call a tool by writing an XML element with its name, at the beginning of a line, with one element for each argument that you set:

<tool_name>
<first_argument>value</first_argument>
<second_argument>value</second_argument>
</tool_name>

- Values are plain text and nothing in them is escaped. Numbers, true and false are written as they are, lists and objects as JSON.
- A value that contains its own closing tag stands in <![CDATA[ and ]]>.
- Several calls may follow one another. Your answer ends after the last one: the results come with the next message, each as a <tool_result> that names the tool.
- What stands in a code fence is text, and calls nothing. Never write a <tool_result> yourself.

# Tools
`

// Describe is what the system prompt says of the tools; "" without any.
func Describe(tools []model.ToolDef) string {
	if len(tools) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString(manual)
	for _, t := range tools {
		about, example := splitExample(t.Description)
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", t.Name, about)
		s := readSchema(t.Schema)
		if len(s.Properties) > 0 {
			b.WriteString("\nArguments:\n")
		}
		for _, name := range s.names() {
			p := s.Properties[name]
			need := ""
			if slices.Contains(s.Required, name) {
				need = ", required"
			}
			fmt.Fprintf(&b, "- %s (%s%s)", name, p.kind(), need)
			if p.Description != "" {
				b.WriteString(": " + p.Description)
			}
			if len(p.Enum) > 0 {
				fmt.Fprintf(&b, " One of %s.", list(p.Enum))
			}
			if nested := p.nested(); nested != "" {
				b.WriteString(" As " + nested)
			}
			b.WriteByte('\n')
		}
		if example != "" {
			if text, ok := Call(&messages.ToolCall{Name: t.Name, Arguments: example}); ok {
				b.WriteString("\nFor example:\n\n" + text + "\n")
			}
		}
	}
	return b.String()
}

// splitExample takes the JSON example out of a description: the other protocol has its own.
func splitExample(text string) (about, example string) {
	text = strings.TrimSpace(text)
	start := strings.Index(text, "`{")
	if start < 0 {
		return text, ""
	}
	end := strings.Index(text[start+1:], "`")
	if end < 0 {
		return text, ""
	}
	example = text[start+1 : start+1+end]
	if !json.Valid([]byte(example)) {
		return text, ""
	}
	before := strings.TrimRight(text[:start], " ")
	for _, lead := range []string{"Example:", "Examples:", "For example:", "for example"} {
		before = strings.TrimSuffix(before, lead)
	}
	after := strings.TrimLeft(text[start+end+2:], " .")
	return strings.TrimSpace(strings.TrimRight(before, " ") + after), example
}

// schema is as much of a JSON Schema as decides how a value is written.
type schema struct {
	Type        any                `json:"type"`
	Description string             `json:"description"`
	Enum        []any              `json:"enum"`
	Properties  map[string]*schema `json:"properties"`
	Required    []string           `json:"required"`
	Items       *schema            `json:"items"`
}

// readSchema reads a tool's schema; one that cannot be read says nothing.
func readSchema(raw json.RawMessage) *schema {
	s := &schema{}
	if json.Unmarshal(raw, s) != nil {
		return &schema{}
	}
	for name, p := range s.Properties {
		if p == nil {
			s.Properties[name] = &schema{}
		}
	}
	return s
}

// names are the arguments: the required ones in their order, then the others.
func (s *schema) names() []string {
	var rest []string
	for name := range s.Properties {
		if !slices.Contains(s.Required, name) {
			rest = append(rest, name)
		}
	}
	slices.Sort(rest)
	var out []string
	for _, name := range s.Required {
		if s.Properties[name] != nil {
			out = append(out, name)
		}
	}
	return append(out, rest...)
}

// types are the JSON types that a value may have; none: any.
func (s *schema) types() []string {
	switch t := s.Type.(type) {
	case string:
		return []string{t}
	case []any:
		var out []string
		for _, one := range t {
			if name, ok := one.(string); ok {
				out = append(out, name)
			}
		}
		return out
	}
	return nil
}

func (s *schema) kind() string {
	types := s.types()
	if len(types) == 0 {
		return "text or JSON"
	}
	for i, t := range types {
		switch t {
		case "array":
			types[i] = "JSON list"
		case "object":
			types[i] = "JSON object"
		}
	}
	return strings.Join(types, " or ")
}

// nested describes what is in a list or an object.
func (s *schema) nested() string {
	of := s
	if s.Items != nil {
		of = s.Items
	}
	if len(of.Properties) == 0 {
		return ""
	}
	var parts []string
	for _, name := range of.names() {
		p := of.Properties[name]
		part := fmt.Sprintf("%q: %s", name, p.kind())
		if len(p.Enum) > 0 {
			part = fmt.Sprintf("%q: one of %s", name, list(p.Enum))
		}
		if !slices.Contains(of.Required, name) {
			part += ", optional"
		}
		parts = append(parts, part)
	}
	out := "{" + strings.Join(parts, "; ") + "}"
	if s.Items != nil {
		out = "[" + out + ", ...]"
	}
	return out
}

func list(values []any) string {
	var out []string
	for _, v := range values {
		b, err := json.Marshal(v)
		if err != nil {
			continue
		}
		out = append(out, string(b))
	}
	return strings.Join(out, ", ")
}
