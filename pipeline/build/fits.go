package build

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// fits says what is wrong with a field of an object that is to be a T. Of types that write themselves as JSON nothing is known, and of a field that the type
// has not Plan tells more.
func fits(object reflect.Type, name string, t reflect.Type) error {
	field := fieldOf(object, name)
	if field == nil || same(field, t, 0) {
		return nil
	}
	return fmt.Errorf("field %s of %s is a %s, and no %s", name, bare(object), field, t)
}

// bare is a type without its pointers.
func bare(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// fieldOf is the type of a field by its name in JSON, nil where nobody knows.
func fieldOf(t reflect.Type, name string) reflect.Type {
	if t == nil || own(t) {
		return nil
	}
	if t = bare(t); t.Kind() == reflect.Map {
		return t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	for _, f := range reflect.VisibleFields(t) {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.IsExported() && tag != "-" && (tag == name || tag == "" && !f.Anonymous && f.Name == name) {
			return f.Type
		}
	}
	return nil
}

// own says whether values of a type write themselves as JSON in their own way.
func own(t reflect.Type) bool {
	for _, i := range []reflect.Type{reflect.TypeFor[json.Marshaler](), reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[json.Unmarshaler](), reflect.TypeFor[encoding.TextUnmarshaler]()} {
		if t.Implements(i) || reflect.PointerTo(t).Implements(i) {
			return true
		}
	}
	return false
}

// deepest is how far lists of lists are looked into.
const deepest = 8

// same says whether what is written as one type can be read as another.
func same(from, to reflect.Type, depth int) bool {
	from, to = bare(from), bare(to)
	if from == to || own(from) || own(to) || depth > deepest {
		return true
	}
	a, b := class(from), class(to)
	switch {
	case a == "" || b == "":
		return true
	case a == "integer" && b == "number":
		return true
	case a != b:
		return false
	case a == "list":
		return same(from.Elem(), to.Elem(), depth+1)
	}
	return true
}

// class is what a type is in JSON; "" where nobody knows.
func class(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Uint, reflect.Uint64, reflect.Uintptr:
		return "integer"
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 { // a text, in base64
			return ""
		}
		return "list"
	default:
		return typeName(t)
	}
}
