package actors

import (
	"encoding/json"
	"slices"
	"strconv"
	"unicode/utf8"
)

// asJSON writes what a tool says beside its result, as encoding/json does; "" when there is nothing, or it cannot be written. The plain texts and
// numbers that tools say in every result need no encoder.
func asJSON(m map[string]any) string {
	if len(m) == 0 {
		return ""
	}
	var few [16]string
	names := few[:0]
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	var short [512]byte
	b := append(short[:0], '{')
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		var ok bool
		if b, ok = appendText(b, name); !ok {
			return ""
		}
		b = append(b, ':')
		if b, ok = appendValue(b, m[name]); !ok {
			return ""
		}
	}
	return string(append(b, '}'))
}

func appendValue(b []byte, v any) ([]byte, bool) {
	switch v := v.(type) {
	case string:
		return appendText(b, v)
	case int:
		return strconv.AppendInt(b, int64(v), 10), true
	case int64:
		return strconv.AppendInt(b, v, 10), true
	case bool:
		return strconv.AppendBool(b, v), true
	}
	return appendEncoded(b, v)
}

func appendText(b []byte, s string) ([]byte, bool) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return appendEncoded(b, s)
		}
	}
	return append(append(append(b, '"'), s...), '"'), true
}

func appendEncoded(b []byte, v any) ([]byte, bool) {
	encoded, err := json.Marshal(v)
	return append(b, encoded...), err == nil
}
