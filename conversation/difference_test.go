package conversation

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"strings"
	"unsafe"

	"google.golang.org/protobuf/proto"
)

// Difference names the first field, exported or not, in which two states are not the same; "" when
// there is none. It walks whatever State is made of: a field that a snapshot forgets cannot hide.
func Difference(a, b *State) string {
	return difference("state", reflect.ValueOf(a), reflect.ValueOf(b))
}

func difference(path string, a, b reflect.Value) string {
	if a.Kind() == reflect.Pointer && a.Type().Implements(reflect.TypeFor[proto.Message]()) {
		x, y := a.Interface().(proto.Message), b.Interface().(proto.Message)
		if a.IsNil() != b.IsNil() || !proto.Equal(x, y) {
			return fmt.Sprintf("%s: %v and %v", path, x, y)
		}
		return ""
	}
	switch a.Kind() {
	case reflect.Pointer:
		if a.IsNil() || b.IsNil() {
			if a.IsNil() != b.IsNil() {
				return path + ": one is nil"
			}
			return ""
		}
		return difference(path, a.Elem(), b.Elem())
	case reflect.Struct:
		return differentFields(path, a, b)
	case reflect.Slice, reflect.Array:
		if a.Len() != b.Len() {
			return fmt.Sprintf("%s: %d and %d elements", path, a.Len(), b.Len())
		}
		for i := range a.Len() {
			if d := difference(fmt.Sprintf("%s[%d]", path, i), a.Index(i), b.Index(i)); d != "" {
				return d
			}
		}
		return ""
	case reflect.Map:
		return differentKeys(path, a, b)
	case reflect.Func:
		return ""
	default:
		if x, y := a.Interface(), b.Interface(); x != y {
			return fmt.Sprintf("%s: %v and %v", path, x, y)
		}
		return ""
	}
}

func differentFields(path string, a, b reflect.Value) string {
	for i := range a.NumField() {
		f := a.Type().Field(i)
		if f.Name == "wire" { // of a message: its encoded form is made when it is first needed
			continue
		}
		if d := difference(path+"."+f.Name, open(a, i), open(b, i)); d != "" {
			return d
		}
	}
	return ""
}

// open makes a field readable whether it is exported or not.
func open(v reflect.Value, i int) reflect.Value {
	if !v.CanAddr() {
		c := reflect.New(v.Type()).Elem()
		c.Set(v)
		v = c
	}
	f := v.Field(i)
	return reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem()
}

func differentKeys(path string, a, b reflect.Value) string {
	for _, k := range a.MapKeys() {
		v, w := a.MapIndex(k), b.MapIndex(k)
		switch {
		case !w.IsValid() && v.Kind() == reflect.Map && v.Len() == 0:
		case !w.IsValid():
			return fmt.Sprintf("%s[%v]: only in the first", path, k)
		default:
			if d := difference(fmt.Sprintf("%s[%v]", path, k), v, w); d != "" {
				return d
			}
		}
	}
	for _, k := range b.MapKeys() {
		if !a.MapIndex(k).IsValid() {
			return fmt.Sprintf("%s[%v]: only in the second", path, k)
		}
	}
	return ""
}

// Recounted estimates the messages of a state anew.
func Recounted(s *State) int {
	n := 0
	for _, m := range s.history.messages {
		n += tokensOf(m)
	}
	return n
}

// Sealed gives a damaged snapshot the sum of what it has become.
func Sealed(b []byte) []byte {
	if len(b) < 4 {
		return b
	}
	b = b[:len(b)-4]
	return binary.BigEndian.AppendUint32(b, sum(b))
}

// Fields are those of everything that State is made of, as text.
func Fields() string {
	var b strings.Builder
	for _, t := range []reflect.Type{
		reflect.TypeFor[State](), reflect.TypeFor[Turn](), reflect.TypeFor[Call](), reflect.TypeFor[Input](), reflect.TypeFor[Timer](),
		reflect.TypeFor[accepted](), reflect.TypeFor[source](), reflect.TypeFor[border](),
	} {
		fmt.Fprintln(&b, t.Name())
		for i := range t.NumField() {
			fmt.Fprintf(&b, "\t%s %s\n", t.Field(i).Name, t.Field(i).Type)
		}
	}
	return b.String()
}
