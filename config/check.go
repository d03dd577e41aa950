package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// refuse holds one written value against its shape: why it cannot stand, and what to do. Empty
// texts of optional settings pass: they mean "not set".
func (s *shape) refuse(t string) (why, fix string) {
	if !utf8.ValidString(t) || strings.ContainsFunc(t, func(r rune) bool { return unsafeRune(r) && r != '\n' && r != '\t' }) {
		return "the value holds characters that cannot be seen", "write plain text"
	}
	if s.kind == list {
		return s.refuseText(t)
	}
	v, err := s.kind.parse(t)
	if err != nil {
		return err.Error(), ""
	}
	if n, ok := number(v); ok {
		return s.refuseNumber(t, n)
	}
	if s.kind == text {
		return s.refuseText(t)
	}
	return "", ""
}

func (s *shape) refuseNumber(t string, n int64) (why, fix string) {
	least := int64(0)
	if v, err := s.kind.parse(s.min); s.min != "" && err == nil {
		least, _ = number(v)
	}
	if n < least {
		return fmt.Sprintf("%s is too small", t), "the least is " + orElse(s.min, "0")
	}
	if v, err := s.kind.parse(s.max); s.max != "" && err == nil {
		if most, _ := number(v); n > most {
			return fmt.Sprintf("%s is too great", t), "the most is " + s.max
		}
	}
	return "", ""
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func (s *shape) refuseText(t string) (why, fix string) {
	if t == "" && !s.need && s.def == "" {
		return "", ""
	}
	if len(s.enum) > 0 && !slices.Contains(s.enum, t) {
		fix = "one of " + strings.Join(s.enum, ", ")
		if near := Near(t, s.enum); len(near) > 0 {
			fix = fmt.Sprintf("did you mean %q? %s", near[0], fix)
		}
		return fmt.Sprintf("%q is not known here", t), fix
	}
	if t == "" {
		if s.need {
			return "the value is empty", "write one"
		}
		return "", ""
	}
	switch s.format {
	case "url":
		return refuseURL(t)
	case "address":
		if _, port, err := net.SplitHostPort(t); err != nil || !isPort(port) {
			return fmt.Sprintf("%q is no HOST:PORT", t), "write for example 127.0.0.1:7777"
		}
	case "host":
		if !isHost(t) {
			return fmt.Sprintf("%q cannot be the host of an address", t), "2 to 63 letters, digits, dots, dashes and underscores, beginning and ending with a letter or digit, and no reserved word such as git or localhost"
		}
	case "variable": // the value may be a key: it is not repeated
		if !isVariable(t) {
			return "this is no name of a variable", "write its name, in capitals; the key itself does not belong here"
		}
	case "cidr":
		if _, err := netip.ParsePrefix(t); err != nil {
			return fmt.Sprintf("%q is no address range", t), "write for example 10.1.0.0/16"
		}
	}
	return "", ""
}

// refuseURL also refuses user and password: URLs end in logs.
func refuseURL(t string) (why, fix string) {
	u, err := url.Parse(t)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return fmt.Sprintf("%q is no http or https address", maskUserinfo(t)), "write for example http://127.0.0.1:11434/v1"
	case u.User != nil:
		return fmt.Sprintf("%q holds a user or password", maskUserinfo(t)), "remove it: addresses are shown in logs"
	case u.RawQuery != "" || u.Fragment != "":
		return fmt.Sprintf("%q goes on after the path", t), "remove what follows ? or #"
	}
	return "", ""
}

// maskUserinfo hides what stands before the @ of an address.
func maskUserinfo(t string) string {
	at := strings.LastIndex(t, "@")
	if at < 0 {
		return t
	}
	scheme, _, found := strings.Cut(t[:at], "//")
	if !found {
		return redacted + t[at:]
	}
	return scheme + "//" + redacted + t[at:]
}

func isPort(s string) bool {
	n, err := parseInteger(s)
	return err == nil && 0 <= n && n <= 65535 && s != ""
}

// isHost follows the grammar of workspace addresses: the name becomes the host of ours.
func isHost(s string) bool {
	reserved := []string{
		"git", "http", "https", "ssh", "file", "ftp", "ftps", "ext", "fd", "data", "docker",
		"container", "javascript", "mailto", "localhost", "local",
	}
	if len(s) < 2 || len(s) > 63 || slices.Contains(reserved, strings.ToLower(s)) || strings.Contains(s, "..") {
		return false
	}
	alnum := func(r byte) bool {
		return '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
	}
	letters := false
	for i := range len(s) {
		inner := i > 0 && i < len(s)-1 && strings.IndexByte("._-", s[i]) >= 0
		if !alnum(s[i]) && !inner {
			return false
		}
		letters = letters || s[i] != '.' && (s[i] < '0' || s[i] > '9')
	}
	return letters
}

// isVariable tells whether s can name a variable. Capitals only: keys of some services would
// else pass as names, and names are shown.
func isVariable(s string) bool {
	other := strings.IndexFunc(s, func(r rune) bool { return r != '_' && (r < 'A' || r > 'Z') && (r < '0' || r > '9') })
	return s != "" && len(s) <= 64 && other < 0 && (s[0] < '0' || s[0] > '9')
}

// badName says why a key that the user chose cannot be one; "" if it can.
func badName(path, key string) string {
	if key == "" || len(key) > 100 {
		return "a name has 1 to 100 characters"
	}
	for i, r := range key {
		alnum := '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || r == '_'
		if !alnum && (i == 0 || !strings.ContainsRune(".-:+", r)) {
			return "a name consists of letters, digits and . _ - : +, and begins with a letter, a digit or _"
		}
	}
	if path == "providers" && (key == Scripted || key == Replay) {
		return "the name is reserved for models that run without a service"
	}
	return ""
}

// fileAnchored tells whether a path in a file means the same from every working directory.
func fileAnchored(t string) bool {
	return t == "" || filepath.IsAbs(t) || t == "~" || strings.HasPrefix(t, "~/")
}
