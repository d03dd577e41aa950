package policy

import (
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// commandPattern is a parsed pattern: words, and what a final `*` adds to them.
type commandPattern struct {
	words []string
	rest  bool // any further words
	part  bool // the last word is only the beginning of one
}

// parseCommandPattern reads what Rule documents: words as a shell reads them, a `*` only at the end.
func parseCommandPattern(pattern string) (commandPattern, *flaw) {
	base, star := strings.CutSuffix(pattern, "*")
	if !star {
		words, f := simple(pattern)
		return commandPattern{words: words}, f
	}
	if strings.TrimSpace(base) == "" {
		return commandPattern{rest: true}, nil
	}
	if strings.HasSuffix(base, `\`) {
		return commandPattern{}, &flaw{len(base), "an escaped * at the end: put it in quotes"}
	}
	words, f := simple(base)
	if f != nil {
		return commandPattern{}, f
	}
	p := commandPattern{words: words, rest: true}
	last, _ := utf8.DecodeLastRuneInString(base)
	if last != ' ' && last != '\t' && last != '_' && !unicode.IsLetter(last) && !unicode.IsDigit(last) {
		p.rest, p.part = false, true
	}
	return p, nil
}

// commandCovered says whether an allow pattern covers a command, which has to be simple.
func commandCovered(pattern, command string) bool {
	p, f := parseCommandPattern(pattern)
	if f != nil {
		return false
	}
	words, f := simple(command)
	if f != nil {
		return false
	}
	n := len(p.words)
	switch {
	case (p.rest || p.part) && launches(words):
		return false
	case len(words) < n || !p.rest && len(words) != n:
		return false
	case p.part:
		n--
		tail, ok := strings.CutPrefix(words[n], p.words[n])
		if !ok || upwards(p.words[n]+tail) {
			return false
		}
	}
	for i := range n {
		if words[i] != p.words[i] {
			return false
		}
	}
	return true
}

// upwards says whether a word holds `..` as a component of a path.
func upwards(word string) bool {
	for _, c := range strings.FieldsFunc(word, func(r rune) bool { return r == '/' || r == '\\' || r == '=' || r == ':' }) {
		if c == ".." {
			return true
		}
	}
	return false
}

// commandTouched says whether any command that a script runs, or may run as far as can be read,
// meets a pattern. Case is ignored, and so is the folder of a program that the pattern names
// without one.
func commandTouched(pattern, command string) bool {
	p, f := parseCommandPattern(pattern)
	if f != nil {
		return true
	}
	cmds, ok := commandsIn(command)
	if !ok {
		return true
	}
	for _, c := range cmds {
		if p.meets(c) {
			return true
		}
	}
	return false
}

// meets compares the words in turn. An unknown word may turn out as any words at all.
func (p commandPattern) meets(c []word) bool {
	for i, want := range p.words {
		switch {
		case i >= len(c):
			return false
		case !c[i].known:
			return true
		}
		have := strings.ToLower(c[i].text)
		want = strings.ToLower(want)
		if i == 0 && !strings.Contains(want, "/") {
			have = path.Base(have)
		}
		if have != want && !(p.part && i == len(p.words)-1 && strings.HasPrefix(have, want)) {
			return false
		}
	}
	if p.rest || p.part {
		return true
	}
	for _, w := range c[len(p.words):] {
		if w.known {
			return false
		}
	}
	return true
}

// isShell knows programs that read a script from an argument or from their input.
func isShell(name string) bool {
	switch name {
	case "sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "csh", "tcsh", "pwsh", "rbash":
		return true
	}
	return false
}

// readsScripts knows the launchers that take an argument, or all of them together, for a script.
func readsScripts(name string) bool {
	switch name {
	case "eval", "trap", "su", "runuser", "ssh", "watch", "parallel", "script", "flock":
		return true
	}
	return isShell(name)
}

// isLauncher knows programs that run what their arguments name. The list errs on the side of asking.
func isLauncher(name string) bool {
	switch name {
	case "eval", "exec", "command", "builtin", "source", ".", "trap", "env", "timeout", "nice", "ionice",
		"nohup", "setsid", "stdbuf", "time", "xargs", "parallel", "sudo", "doas", "su", "runuser", "ssh", "watch", "chroot",
		"unshare", "nsenter", "setpriv", "strace", "ltrace", "script", "flock", "taskset", "chrt", "prlimit", "busybox",
		"toybox", "entr", "systemd-run", "start-stop-daemon", "unbuffer", "expect", "at", "batch", "crontab", "cmd":
		return true
	}
	return isShell(name)
}

// launches says whether a command runs another one that its arguments name.
func launches(words []string) bool {
	name := strings.ToLower(path.Base(words[0]))
	switch name {
	case "find", "fd":
		for _, w := range words[1:] {
			if findAction(w) {
				return true
			}
		}
	case "git":
		for _, w := range words[1:] {
			if gitConfig(w) {
				return true
			}
		}
	}
	return isLauncher(strings.TrimSuffix(name, ".exe"))
}

// findAction knows the options of find and fd that run, delete or write.
func findAction(w string) bool {
	switch w {
	case "-exec", "-execdir", "-ok", "-okdir", "-delete", "-x", "-X", "--exec", "--exec-batch":
		return true
	}
	return strings.HasPrefix(w, "-fprint") || strings.HasPrefix(w, "-fls") || strings.HasPrefix(w, "--exec")
}

// gitConfig knows the options by which a git command brings its own programs along.
func gitConfig(w string) bool {
	return strings.HasPrefix(w, "-c") || strings.HasPrefix(w, "--config-env") || strings.HasPrefix(w, "--exec-path") ||
		strings.HasPrefix(w, "--upload-pack") || strings.HasPrefix(w, "--receive-pack") || strings.HasPrefix(w, "--ext-diff") ||
		strings.HasPrefix(w, "--open-files-in-pager") || strings.HasPrefix(w, "--output")
}
