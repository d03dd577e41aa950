package pipeline

import (
	"slices"

	"github.com/expr-lang/expr/checker/nature"
	"github.com/expr-lang/expr/types"
)

// natural is the type of an expression that was checked.
type natural struct{ n nature.Nature }

func (t natural) Nature() nature.Nature { return t.n }
func (t natural) Equal(types.Type) bool { return false }
func (t natural) String() string        { n := t.n; return n.String() }

// elem is the type of the items of a list.
func elem(t types.Type) types.Type {
	n, ok := t.(natural)
	if !ok || n.n.Ref == nil {
		return types.Any
	}
	return natural{*n.n.Ref}
}

// inputType is the type of an input in expressions.
func inputType(in *Input) types.Type {
	if !in.Required && in.Default == nil {
		return types.Any
	}
	switch in.Type {
	case "string", "path", "file":
		return types.String
	case "integer":
		return types.Int
	case "boolean":
		return types.Bool
	case "list":
		return types.Array(types.Any)
	}
	return types.Any
}

// schemaType is what a JSON schema says of a value, as far as expressions can know it.
func schemaType(schema any) types.Type {
	s, ok := schema.(map[string]any)
	if !ok {
		return types.Any
	}
	switch s["type"] {
	case "object":
		props, _ := s["properties"].(map[string]any)
		required, _ := s["required"].([]any)
		out := types.Map{}
		for name, sub := range props {
			if out[name] = types.Any; slices.Contains(required, any(name)) {
				out[name] = schemaType(sub)
			}
		}
		if extra, said := s["additionalProperties"]; !said && len(props) == 0 || said && extra != false {
			out[types.Extra] = types.Any
		}
		return out
	case "array":
		return types.Array(schemaType(s["items"]))
	case "string":
		return types.String
	case "boolean":
		return types.Bool
	case "integer":
		return types.Int
	}
	if values, ok := s["enum"].([]any); ok && len(values) > 0 {
		for _, v := range values {
			if _, text := v.(string); !text {
				return types.Any
			}
		}
		return types.String
	}
	return types.Any
}

// outputType is what one item of a step gives.
func outputType(s *Step) types.Type {
	switch {
	case s.Schema != nil:
		return schemaType(s.Schema.Value)
	case s.Kind == NestedStep:
		return types.Any
	}
	return types.String
}

// stepType is what other steps see of a step.
func stepType(s *Step) types.Type {
	one := outputType(s)
	if _, object := one.(types.Map); !object && (s.Fan() || s.OnError == Continue) {
		one = types.Any // of an item that failed there is none
	}
	whole := one
	if s.Fan() {
		whole = types.Array(one)
	}
	lineage := types.Map{"conversation": types.String, "seq": types.Int}
	usage := types.Map{"input_tokens": types.Int, "output_tokens": types.Int, "cost_usd": types.Any}
	item := types.Map{
		"key": types.String, "index": types.Int, "status": types.String, "output": one, "error": types.String, "usage": usage, "conversation": lineage,
		"value": types.Any,
	}
	return types.Map{
		"output": whole, "items": types.Array(item), "status": types.String, "error": types.String, "usage": usage, "conversation": lineage,
	}
}
