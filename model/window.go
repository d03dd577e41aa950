package model

import "strings"

// Window is how many tokens the context of a well-known model holds, input and output together, by the provider's
// own name of it; 0 when the name is not known. These are facts of the providers' model pages of 2025: a
// configured value (`models.ALIAS.context`) goes before them. Models that people run themselves are not
// here: their window is what their server was started with.
func Window(name string) int64 {
	if i := strings.LastIndexByte(name, '/'); i >= 0 { // a gateway's name, such as anthropic/claude-sonnet-4
		name = name[i+1:]
	}
	for _, w := range windows {
		if rest, ok := strings.CutPrefix(name, w.prefix); ok && (rest == "" || rest[0] == '-' || rest[0] == '.' || rest[0] == ':' || rest[0] == '@') {
			return w.tokens
		}
	}
	return 0
}

type window struct {
	prefix string // of a name, up to a separator
	tokens int64
}

// windows has longer prefixes before those that they begin with.
var windows = []window{ //nolint:gochecknoglobals // never changed
	{"gpt-5-chat", 128_000},
	{"gpt-5", 400_000},
	{"gpt-4.1", 1_047_576},
	{"gpt-4o", 128_000},
	{"chatgpt-4o", 128_000},
	{"gpt-4-turbo", 128_000},
	{"gpt-4-32k", 32_768},
	{"gpt-4", 8_192},
	{"gpt-3.5-turbo", 16_385},
	{"o1-mini", 128_000},
	{"o1-preview", 128_000},
	{"o1", 200_000},
	{"o3", 200_000},
	{"o4-mini", 200_000},
	{"claude-2.0", 100_000},
	{"claude-2.1", 200_000},
	{"claude-3", 200_000},
	{"claude-opus-4", 200_000},
	{"claude-sonnet-4", 200_000},
	{"claude-haiku-4", 200_000},
	{"gemini-1.5-pro", 2_097_152},
	{"gemini-1.5-flash", 1_048_576},
	{"gemini-2.0-flash", 1_048_576},
	{"gemini-2.5-pro", 1_048_576},
	{"gemini-2.5-flash", 1_048_576},
}
