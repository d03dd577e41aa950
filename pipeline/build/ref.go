package build

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Value is a value that a run will have: a Ref of any type.
type Value interface{ expression() expression }

// expression is a source with the steps that it uses.
type expression struct {
	src   string
	steps []string
	err   error
}

// Ref is a value of type T that a run will have. The zero value is none.
type Ref[T any] expression

func (r Ref[T]) expression() expression { return expression(r) }

func (r Ref[T]) text() string { return "${{ " + r.src + " }}" }

// set says whether it is a value at all.
func (r Ref[T]) set() bool { return r.src != "" || r.err != nil }

// Field is a field of an object, by its name in JSON. That there is one is checked by Plan, where a schema tells.
func Field[T any](of Value, name string) Ref[T] {
	e := of.expression()
	if regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`).MatchString(name) {
		e.src += "." + name
	} else {
		e.src += "[" + strconv.Quote(name) + "]"
	}
	return Ref[T](e)
}

// Or is a value, or another one where there is none: of a step that may be skipped, or of a failed one that the run goes on without.
func Or[T any](r Ref[T], otherwise T) Ref[T] {
	lit, err := literal(otherwise)
	return Ref[T]{src: "(" + r.src + " ?? " + lit + ")", steps: r.steps, err: errors.Join(r.err, err)}
}

// Is says whether a value is v.
func Is[T comparable](r Ref[T], v T) Ref[bool] {
	lit, err := literal(v)
	return Ref[bool]{src: "(" + r.src + " == " + lit + ")", steps: r.steps, err: errors.Join(r.err, err)}
}

// Not is the opposite.
func Not(r Ref[bool]) Ref[bool] {
	return Ref[bool]{src: "!(" + r.src + ")", steps: r.steps, err: r.err}
}

// Const is a value that is known now.
func Const[T any](v T) Ref[T] {
	lit, err := literal(v)
	return Ref[T]{src: lit, err: err}
}

// Expr is any other expression of the language of pipelines, with a %s for each of the values: build.Expr[int]("len(%s)", list). That it gives a T is not checked.
func Expr[T any](format string, uses ...Value) Ref[T] {
	out := expression{}
	pieces := strings.Split(format, "%s")
	if len(pieces) != len(uses)+1 {
		return Ref[T]{err: fmt.Errorf("expression %q has %d times %%s for %d values", format, len(pieces)-1, len(uses))}
	}
	var b strings.Builder
	for i, piece := range pieces {
		b.WriteString(piece)
		if i < len(uses) {
			b.WriteString(out.use(uses[i]))
		}
	}
	out.src = b.String()
	return Ref[T](out)
}

// use takes over the steps of a value.
func (e *expression) use(v Value) string {
	if v == nil {
		e.err = errors.Join(e.err, errors.New("a value is nil"))
		return ""
	}
	x := v.expression()
	if x.src == "" && x.err == nil {
		x.err = errors.New("a value is the zero Ref")
	}
	for _, s := range x.steps {
		if !slices.Contains(e.steps, s) {
			e.steps = append(e.steps, s)
		}
	}
	e.err = errors.Join(e.err, x.err)
	return x.src
}

// Template is a text with values in it.
type Template struct {
	raw   string
	steps []string
	err   error
}

// Text joins strings, which stand for themselves, and values.
func Text(parts ...any) Template {
	var e expression
	var b strings.Builder
	for i, part := range parts {
		switch x := part.(type) {
		case string:
			b.WriteString(strings.ReplaceAll(x, "${{", "${{ '${{' }}"))
		case Value:
			b.WriteString("${{ " + e.use(x) + " }}")
		default:
			e.err = errors.Join(e.err, fmt.Errorf("part %d of a text is a %T: it is neither a string nor a value of the run", i+1, part))
		}
	}
	return Template{b.String(), e.steps, e.err}
}

// literal writes a value as the language of expressions has it.
func literal(v any) (string, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return "nil", fmt.Errorf("a constant: %w", err)
	}
	s := strings.TrimSpace(b.String())
	if s == "null" {
		return "nil", nil
	}
	return s, nil
}

// tree replaces the values and templates in arguments by their texts.
func (e *expression) tree(v any) any {
	switch x := v.(type) {
	case Value:
		return "${{ " + e.use(x) + " }}"
	case Template:
		return e.template(x)
	case string:
		return Text(x).raw
	case map[string]any:
		out := make(map[string]any, len(x))
		for k, sub := range x {
			out[k] = e.tree(sub)
		}
		return out
	case []any:
		out := make([]any, len(x))
		for i, sub := range x {
			out[i] = e.tree(sub)
		}
		return out
	}
	return v
}
