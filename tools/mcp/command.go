package mcp

import (
	"bytes"
	"os"
	"os/exec"
	"sync"
)

// passed are the variables that a command gets of ours; keys of providers are not among them.
var passed = []string{"PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "SYSTEMROOT", "APPDATA", "USERPROFILE", "TEMP"} //nolint:gochecknoglobals // never changed

func environment() []string {
	var out []string
	for _, name := range passed {
		if v, ok := os.LookupEnv(name); ok {
			out = append(out, name+"="+v)
		}
	}
	return out
}

func command(argv []string) *exec.Cmd {
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:gosec // who configures a server runs it
	ownGroup(cmd)
	return cmd
}

// maxLine is how much of one line of a server's stderr is logged.
const maxLine = 2000

// logLines logs what a server writes to its stderr, line by line.
type logLines struct {
	log func(string)

	mu   sync.Mutex
	line []byte
}

// Write implements io.Writer.
func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(p)
	for {
		line, rest, ok := bytes.Cut(p, []byte("\n"))
		if room := maxLine - len(l.line); room > 0 {
			l.line = append(l.line, line[:min(len(line), room)]...)
		}
		if !ok {
			return n, nil
		}
		if len(l.line) > 0 {
			l.log(string(bytes.ToValidUTF8(l.line, []byte("\uFFFD"))))
		}
		l.line, p = l.line[:0], rest
	}
}
