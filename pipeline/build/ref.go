package build

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
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
	maybe bool         // there may be none: of a failed step that the run goes on without
	of    *Pipeline    // whose value it is; nil: any's
	typ   reflect.Type // where it is known
	err   error
}

// Ref is a value of type T that a run will have. The zero value is none.
type Ref[T any] expression

func (r Ref[T]) expression() expression {
	e := expression(r)
	e.typ = reflect.TypeFor[T]()
	return e
}

func (r Ref[T]) text() string { return "${{ " + r.src + " }}" }

// set says whether it is a value at all.
func (r Ref[T]) set() bool { return r.src != "" || r.err != nil }

// Field is a field of an object, by its name in JSON. That there is one, and that it is a T, is checked by Plan, where a schema or the type of the
// object tells.
func Field[T any](of Value, name string) Ref[T] {
	var e expression
	if e.src = e.use(of); of == nil {
		return Ref[T](e)
	}
	object := of.expression()
	e.maybe = object.maybe
	e.err = errors.Join(e.err, fits(object.typ, name, reflect.TypeFor[T]()))
	if regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`).MatchString(name) {
		e.src += e.dot() + name
	} else if e.maybe {
		e.src += "?.[" + strconv.Quote(name) + "]"
	} else {
		e.src += "[" + strconv.Quote(name) + "]"
	}
	return Ref[T](e)
}

func (e *expression) dot() string {
	if e.maybe {
		return "?."
	}
	return "."
}

// Or is a value, or another one where there is none: of a step that may be skipped, or of a failed one that the run goes on without.
func Or[T any](r Ref[T], otherwise T) Ref[T] {
	lit, err := literal(otherwise)
	return Ref[T]{src: "(" + r.src + " ?? " + lit + ")", steps: r.steps, of: r.of, err: errors.Join(r.err, err)}
}

// Is says whether a value is v.
func Is[T comparable](r Ref[T], v T) Ref[bool] {
	lit, err := literal(v)
	return Ref[bool]{src: "(" + r.src + " == " + lit + ")", steps: r.steps, of: r.of, err: errors.Join(r.err, err)}
}

// Not is the opposite.
func Not(r Ref[bool]) Ref[bool] {
	return Ref[bool]{src: "!(" + r.src + ")", steps: r.steps, of: r.of, err: r.err}
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
	out.src = "(" + b.String() + ")"
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
	e.belong(x.of)
	return x.src
}

// belong notes whose value it uses: all are of one pipeline.
func (e *expression) belong(p *Pipeline) {
	switch {
	case p == nil || e.of == p:
	case e.of == nil:
		e.of = p
	default:
		e.err = errors.Join(e.err, fmt.Errorf("values of two pipelines, %s and %s, are used together: one that runs the other gives it inputs", e.of.doc.Name, p.doc.Name))
	}
}

// Template is a text with values in it.
type Template struct {
	raw   string
	steps []string
	of    *Pipeline
	err   error
}

// Text joins strings, which stand for themselves, and values.
func Text(parts ...any) Template {
	var e expression
	var b strings.Builder
	plain := "" // what stands side by side is escaped together
	flush := func() {
		b.WriteString(strings.ReplaceAll(plain, "${{", "${{ '${{' }}"))
		plain = ""
	}
	for i, part := range parts {
		switch x := part.(type) {
		case string:
			plain += x
		case Value:
			flush()
			b.WriteString("${{ " + e.use(x) + " }}")
		default:
			e.err = errors.Join(e.err, fmt.Errorf("part %d of a text is a %T: it is neither a string nor a value of the run", i+1, part))
		}
	}
	flush()
	return Template{b.String(), e.steps, e.of, e.err}
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
	case nil, bool, json.Number:
		return v
	}
	switch r := reflect.ValueOf(v); {
	case r.Kind() == reflect.String:
		return e.tree(r.String())
	case r.Kind() == reflect.Slice:
		out := make([]any, r.Len())
		for i := range out {
			out[i] = e.tree(r.Index(i).Interface())
		}
		return out
	case r.Kind() == reflect.Map && r.Type().Key().Kind() == reflect.String:
		out := make(map[string]any, r.Len())
		for _, k := range r.MapKeys() {
			out[k.String()] = e.tree(r.MapIndex(k).Interface())
		}
		return out
	}
	return e.tree(e.generic(v))
}

// generic is a value of another type as JSON has it, so that no text in it is taken for an expression.
func (e *expression) generic(v any) (out any) {
	b, err := json.Marshal(v)
	if err == nil {
		dec := json.NewDecoder(bytes.NewReader(b))
		dec.UseNumber()
		err = dec.Decode(&out)
	}
	if err != nil {
		e.err = errors.Join(e.err, fmt.Errorf("an argument: %w", err))
	}
	return out
}
