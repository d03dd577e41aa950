package config

import (
	"reflect"
	"strconv"
	"strings"
	"time"
)

// kind is what a setting holds.
type kind uint8

const (
	section  kind = iota + 1 // a struct: fixed keys
	mapping                  // names chosen by the user, each with an elem
	entries                  // a list of structs; the files' lists are joined
	list                     // a list of texts; the strongest layer's wins
	text                     //
	boolean                  //
	integer                  //
	duration                 //
	size                     //
	usd                      //
	secret                   // a text that is never shown
)

func (k kind) String() string {
	names := [...]string{
		"nothing", "a section", "a mapping", "a list", "a list of texts", "text", "true or false",
		"a whole number", "a duration", "a size", "an amount", "text",
	}
	return names[k]
}

// scalar tells whether a value of this kind is one piece of text.
func (k kind) scalar() bool { return k >= text }

// shape describes one place of the configuration: what may stand there. It is derived from the
// structs and their tags, so that files, environment, schema and documentation cannot disagree.
type shape struct {
	name, doc string
	kind      kind
	typ       reflect.Type
	fields    []*shape // of a section, in order
	elem      *shape   // of a mapping or entries
	index     int      // of the field in its struct
	def       string   // default, as one would write it
	enum      []string
	min, max  string
	format    string   // tag kind: path, url, address, host, cidr
	only      string   // at most one of the siblings with the same word is set
	project   string   // see Config
	need      bool     // an entry without it is refused
	later     []string // values that have no effect: see NotYet
	instead   string   // what does what they would
}

// describe derives the shape of the whole configuration. It costs some tens of microseconds, is
// made once per Load and never changed after.
func describe() *shape {
	root := shapeOf(reflect.TypeFor[Config](), "", nil)
	for path, def := range commonLimits() {
		s := root
		for name := range strings.SplitSeq(path, ".") {
			s = s.field(name)
		}
		s.def = def
	}
	for _, name := range []string{"sessions", "workers", "jobs", "queue", "idle", "handoffs", "sends", "unasked", "outbox", "spoken", "compact_at", "compact_keep"} { // of a session, not of one of its agents
		root.field("agents").elem.field("limits").field(name).later = []string{"*"}
	}
	return root
}

func shapeOf(t reflect.Type, inherited string, later []string) *shape {
	s := &shape{typ: t, project: inherited, later: later}
	switch {
	case t == reflect.TypeFor[time.Duration]():
		s.kind = duration
	case t == reflect.TypeFor[Size]():
		s.kind = size
	case t == reflect.TypeFor[USD]():
		s.kind = usd
	case t == reflect.TypeFor[Secret]():
		s.kind = secret
	case t.Kind() == reflect.Struct:
		s.kind = section
		for i := range t.NumField() {
			s.fields = append(s.fields, fieldShape(t.Field(i), i, inherited, later))
		}
	case t.Kind() == reflect.Map:
		s.kind, s.elem = mapping, shapeOf(t.Elem(), inherited, later)
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		s.kind, s.elem = entries, shapeOf(t.Elem(), inherited, later)
	case t.Kind() == reflect.Slice:
		s.kind = list
	case t.Kind() == reflect.Bool:
		s.kind = boolean
	case t.Kind() == reflect.Int64:
		s.kind = integer
	default:
		s.kind = text
	}
	return s
}

// fieldShape reads the tags of a field. What project says of an entry holds for all of it.
func fieldShape(f reflect.StructField, i int, inherited string, later []string) *shape {
	tag := f.Tag
	project := inherited
	if p := tag.Get("project"); p == "deny" {
		project = p
	}
	if own := laterOf(tag.Get("later")); own != nil {
		later = own
	}
	s := shapeOf(f.Type, project, later)
	s.name, s.doc, s.index = tag.Get("yaml"), tag.Get("doc"), i
	s.def, s.min, s.max = tag.Get("default"), tag.Get("min"), tag.Get("max")
	s.format, s.only = tag.Get("kind"), tag.Get("only")
	s.need, s.later, s.instead = tag.Get("need") != "", later, tag.Get("instead")
	if p, ok := tag.Lookup("project"); ok {
		s.project = p
	}
	s.doc += s.waiting()
	if e := tag.Get("enum"); e != "" {
		s.enum = strings.Split(e, ",")
	}
	return s
}

func (s *shape) field(name string) *shape {
	for _, f := range s.fields {
		if f.name == name {
			return f
		}
	}
	return nil
}

func (s *shape) names() []string {
	out := make([]string, len(s.fields))
	for i, f := range s.fields {
		out[i] = f.name
	}
	return out
}

// child is the path of a key below path. A key that is not a plain word is quoted, so that a
// model called gpt-4.1 and a section 1 below gpt-4 stay two paths.
func child(path, key string) string {
	if !plainKey(key) {
		key = strconv.Quote(key)
	}
	if path == "" || strings.HasPrefix(key, "[") {
		return path + key
	}
	return path + "." + key
}

func plainKey(key string) bool {
	if key == "" {
		return false
	}
	if strings.HasPrefix(key, "[") { // the place in a list
		key = strings.TrimSuffix(key[1:], "]")
		_, err := strconv.Atoi(key)
		return err == nil
	}
	for _, r := range key {
		ok := r == '_' || r == '-' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		if !ok {
			return false
		}
	}
	return true
}
