package config

import (
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/troupe-dev/troupe/internal/yamldoc"
)

func position(tk *token.Token) (line, col int) { return yamldoc.Position(tk) }

func mapValues(node ast.Node) ([]*ast.MappingValueNode, bool) { return yamldoc.MapValues(node) }

func keyText(key ast.MapKeyNode) (string, bool) { return yamldoc.KeyText(key) }

func describeNode(node ast.Node) string { return yamldoc.Describe(node) }

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
