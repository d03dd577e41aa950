package config

import (
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

func position(tk *token.Token) (line, col int) {
	if tk == nil || tk.Position == nil {
		return 0, 0
	}
	return tk.Position.Line, tk.Position.Column
}

// mapValues gives the pairs of a mapping; a single pair has a node type of its own.
func mapValues(node ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := node.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	}
	return nil, false
}

// keyText is a key as it was written: 4.10 stays 4.10.
func keyText(key ast.MapKeyNode) (string, bool) {
	switch k := key.(type) {
	case *ast.StringNode:
		return k.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
		return strings.TrimSpace(k.GetToken().Value), true
	}
	return "", false
}

// scalarText is a scalar as it was written, if its YAML type fits the kind: no guessing, 60 is
// no text and "8" is no number.
func scalarText(k kind, node ast.Node) (string, bool) {
	raw := strings.TrimSpace(node.GetToken().Value)
	switch n := node.(type) {
	case *ast.StringNode:
		huge := k == integer && n.Token.Type == token.StringType && strings.Trim(n.Value, "-_0123456789") == ""
		return n.Value, huge || k == text || k == secret || k == duration || k == size || k == usd
	case *ast.LiteralNode:
		return n.Value.Value, k == text || k == secret
	case *ast.IntegerNode:
		return raw, k == integer || k == size || k == usd || k == duration
	case *ast.FloatNode:
		return raw, k == usd
	case *ast.BoolNode:
		return raw, k == boolean
	}
	return "", false
}

func describeNode(node ast.Node) string {
	switch node.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode, *ast.LiteralNode:
		return "text"
	case *ast.IntegerNode:
		return "a whole number"
	case *ast.FloatNode:
		return "a number"
	case *ast.BoolNode:
		return "true or false"
	}
	return "something else"
}

// example shows how a value of the kind is written.
func (k kind) example() string {
	switch k {
	case text, secret:
		return "put it in quotes if it is meant as text"
	case boolean:
		return "write true or false"
	case integer:
		return "write for example 10"
	case duration:
		return "write for example 60s or 1h30m"
	case size:
		return "write for example 64MiB"
	case usd:
		return "write for example 1.50"
	case list, entries:
		return "write one item per line, each beginning with -"
	case section, mapping:
		return "write its keys below it, indented"
	}
	return ""
}
