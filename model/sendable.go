package model

import (
	"encoding/json"
	"strings"
)

// What every provider takes of a conversation's past, whatever the models in it have written. The journal keeps it as it was.

// Result is the text of a tool's result, which must not be empty: clients omit such ones, and providers refuse that.
func Result(text string) string {
	if text == "" {
		return "(no output)"
	}
	return text
}

// CallArguments are the arguments of a past call as JSON. Servers that parse them would refuse every later request of a conversation in
// which a model once wrote broken JSON; the raw text then stands inside of an object.
func CallArguments(args string) string {
	if args == "" || args == "null" {
		return "{}"
	}
	if json.Valid([]byte(args)) {
		return args
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(map[string]string{"invalid_json": args}); err != nil { // of a string: cannot happen
		return "{}"
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// maxCallName is the longest name of a call that all providers take back: OpenAI refuses the request with anything longer.
const maxCallName = 64

// CallName is the name of a past call. A model may call what never was a tool by any name; providers that check names (letters, digits, _
// and -) would refuse every later request of that conversation.
func CallName(name string) string {
	odd := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
	}
	if name != "" && len(name) <= maxCallName && strings.IndexFunc(name, odd) < 0 {
		return name
	}
	name = strings.Map(func(r rune) rune {
		if odd(r) {
			return '_'
		}
		return r
	}, name)
	if name == "" {
		return "_"
	}
	return name[:min(len(name), maxCallName)]
}
