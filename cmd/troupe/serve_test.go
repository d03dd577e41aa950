package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/troupe-dev/troupe/messages"
)

// served is a server of a machine that is ready.
type served struct {
	*running
	m   *machine
	url string
}

// serve starts a server on a free port and waits until it is ready.
func (m *machine) serve(args ...string) *served {
	m.t.Helper()
	s := &served{m: m, running: m.start(append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)}
	line, err := s.out.ReadString('\n')
	if err != nil {
		_, _ = s.wait()
		m.t.Fatalf("the server says nothing: %v\n%s", err, s.stderr.String())
	}
	s.url = strings.TrimSpace(line)
	m.eventually("the server does not become ready", func() bool { return s.get("/readyz") == 200 })
	m.t.Cleanup(func() {
		_ = s.cmd.Process.Kill() // it has ended, unless the test failed
		_ = s.cmd.Wait()
	})
	return s
}

// get asks for an address and gives the status, 0 when nobody answers.
func (s *served) get(path string) int {
	res, err := http.Get(s.url + path)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode
}

// session is that of the machine's one session, as its server says.
func (s *served) session() messages.ShownJSON {
	s.t.Helper()
	code, out, stderr := s.m.run("show", s.m.onlySession(), "-o", "json", "--server", s.url)
	var shown messages.ShownJSON
	if err := json.Unmarshal([]byte(out), &shown); err != nil || code != 0 {
		s.t.Fatalf("show ended with %d, %v: %s%s", code, err, out, stderr)
	}
	return shown
}

func (s *served) outcome() string {
	turns := s.session().Turns
	if len(turns) != 1 {
		s.t.Fatalf("there are %d turns", len(turns))
	}
	return turns[0].Outcome
}

func TestAServerAnswersOverTheNetworkAsOnItsSocketAndStopsInOrder(t *testing.T) {
	m := newMachine(t)
	s := m.serve()
	code, out, stderr := m.run("run", "hello", "-C", "a", "-m", "scripted/echo", "--server", s.url)
	if code != 0 || out != "You said: hello\n" {
		t.Fatalf("run ended with %d: %s%s", code, out, stderr)
	}
	_, over, _ := m.run("ls", "sessions", "-o", "json", "--server", s.url)
	_, beside, _ := m.run("ls", "sessions", "-o", "json")
	if over != beside || !strings.Contains(over, `"hello"`) {
		t.Errorf("over the network:\n%s\non the socket:\n%s", over, beside)
	}
	if lines := strings.Count(s.stderr.String(), "\n") + 1; lines > 8 {
		t.Errorf("the banner has %d lines:\n%s", lines, s.stderr.String())
	}
	code, _, stderr = m.run("serve", "--listen", "127.0.0.1:0")
	if code != exitAgain || !strings.Contains(stderr, fmt.Sprintf("held by process %d", s.cmd.Process.Pid)) {
		t.Errorf("a second server ended with %d: %s", code, stderr)
	}
	code, _, stderr = m.run("serve", "--data", filepath.Join(m.home, "other"), "--listen", strings.TrimPrefix(s.url, "http://"))
	if want := fmt.Sprintf("is taken by process %d", s.cmd.Process.Pid); code != exitIO || !strings.Contains(stderr, want) || !strings.Contains(stderr, "--listen") {
		t.Errorf("a server on a taken port ended with %d, want %q: %s", code, want, stderr)
	}
	if _, err := os.Stat(filepath.Join(m.home, "other")); err == nil {
		t.Error("it made its data directory before it looked at its port")
	}
	if code, _, stderr := m.run("stop"); code != 0 {
		t.Errorf("stop ended with %d: %s", code, stderr)
	}
	if code, _ := s.wait(); code != 0 {
		t.Errorf("the server ended with %d: %s", code, s.stderr.String())
	}
	if _, err := os.Stat(filepath.Join(m.home, ".local/share/troupe", serverFile)); err == nil {
		t.Error("the note of where the server is outlives it")
	}
	code, _, stderr = m.run("ls", "sessions", "--server", s.url)
	if code != exitUnreachable || !strings.Contains(stderr, "troupe serve") {
		t.Errorf("ls at a server that is gone ended with %d: %s", code, stderr)
	}
}

func TestAServerGoesOnWithWhatWasRunningWhenItWasKilled(t *testing.T) {
	newMachine(t).killedAndBack(func() {})
}

// killedAndBack kills a server and its client in the middle of a tool's call, and has the next server end the turn.
func (m *machine) killedAndBack(before func()) {
	m.t.Helper()
	script := m.write("s.yaml", strings.ReplaceAll(blocking, "MARK", messages.NewID("mark_")))
	s := m.serve()
	r := m.start("run", "work", "-C", "a", "-m", "scripted/"+script, "--trust", "full", "--server", s.url)
	m.begun("a")
	before()
	s.signal(os.Kill)
	_, _ = s.wait()
	r.signal(os.Kill)
	_, _ = r.wait()
	if err := os.WriteFile(filepath.Join(m.folder("a"), "go"), nil, 0o600); err != nil {
		m.t.Fatal(err)
	}
	s = m.serve()
	m.eventually("the turn does not end by itself", func() bool { return s.outcome() == "done" })
	s.signal(syscall.SIGTERM)
	if code, _ := s.wait(); code != 0 {
		m.t.Errorf("the server ended with %d: %s", code, s.stderr.String())
	}
}

func TestAServerThatStopsBeginsNothingAndLetsTurnsEnd(t *testing.T) {
	m := newMachine(t)
	script := m.write("s.yaml", strings.ReplaceAll(blocking, "MARK", messages.NewID("mark_")))
	config := m.write("c.yaml", "server: {grace: 1m}\n")
	s := m.serve("--config", config)
	r := m.start("run", "work", "-C", "a", "-m", "scripted/"+script, "--trust", "full", "--server", s.url)
	m.begun("a")
	s.signal(syscall.SIGTERM)
	m.eventually("the server does not say that it stops", func() bool { return s.get("/readyz") == 503 })
	res, err := http.Post(s.url+"/api/sessions", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != 503 {
		t.Errorf("a session is begun while the server stops: %s", res.Status)
	}
	if err := os.WriteFile(filepath.Join(m.folder("a"), "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _ := s.wait(); code != 0 {
		t.Errorf("the server ended with %d: %s", code, s.stderr.String())
	}
	_, _ = r.wait() // its stream may have been closed before it saw the end
	if got := m.outcome(); got != "done" {
		t.Errorf("the turn came to %q: it was not let end", got)
	}
}

// outcome is that of the one turn of the machine's one session, of the data directory alone.
func (m *machine) outcome() string {
	m.t.Helper()
	_, out, _ := m.run("show", m.onlySession(), "-o", "json")
	var shown messages.ShownJSON
	if err := json.Unmarshal([]byte(out), &shown); err != nil || len(shown.Turns) != 1 {
		m.t.Fatalf("%v: %s", err, out)
	}
	return shown.Turns[0].Outcome
}

func TestASecondSignalEndsAServerAtOnce(t *testing.T) {
	m := newMachine(t)
	script := m.write("s.yaml", strings.ReplaceAll(blocking, "MARK", messages.NewID("mark_")))
	s := m.serve("--config", m.write("c.yaml", "server: {grace: 1h}\n"))
	r := m.start("run", "work", "-C", "a", "-m", "scripted/"+script, "--trust", "full", "--server", s.url)
	m.begun("a")
	s.signal(syscall.SIGTERM)
	m.eventually("the server does not say that it stops", func() bool { return s.get("/readyz") == 503 })
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.cmd.Wait()
	}()
	m.eventually("the second one does not end it", func() bool { // one that comes at once is the first one still
		_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
	if state := s.cmd.ProcessState.String(); !strings.Contains(state, "terminated") {
		t.Errorf("the server ended with %s", state)
	}
	r.signal(os.Kill)
	_, _ = r.wait()
	if err := os.WriteFile(filepath.Join(m.folder("a"), "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := m.run("run", "-s", m.onlySession()); code != 0 {
		t.Errorf("the turn does not go on: %d, %s", code, stderr)
	}
}

func TestTheServiceManagerIsTold(t *testing.T) {
	m := newMachine(t)
	path := filepath.Join(m.folder("a"), "n")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Skip("no socket of this length: ", err)
	}
	defer l.Close()
	said := make(chan string, 2)
	go func() {
		b := make([]byte, 100)
		for {
			n, err := l.Read(b)
			if err != nil {
				return
			}
			said <- string(b[:n])
		}
	}()
	m.env = append(m.env, "NOTIFY_SOCKET="+path)
	s := m.serve()
	if got := <-said; got != "READY=1" {
		t.Errorf("told %q", got)
	}
	s.signal(syscall.SIGTERM)
	if got := <-said; got != "STOPPING=1" {
		t.Errorf("told %q", got)
	}
	_, _ = s.wait()
}

// TestOpenTurnsGoOnThoughThereIsRoomForOneSessionOnly: two turns were cut off, the first takes longer than a request waits for room, and nobody asks for the second.
func TestOpenTurnsGoOnThoughThereIsRoomForOneSessionOnly(t *testing.T) {
	if testing.Short() {
		t.Skip("two turns one after the other take some ten seconds")
	}
	m := newMachine(t)
	script := m.write("s.yaml", strings.ReplaceAll(slowScript, "TEXT", strings.Repeat("and so on ", 300)))
	for _, dir := range []string{"a", "b"} {
		r := m.start("run", "think", "-C", dir, "-m", "scripted/"+script, "--trust", "full")
		r.waitFor("I think.")
		r.signal(syscall.SIGKILL)
		r.wait()
	}
	m.write("s.yaml", strings.ReplaceAll(slowScript, "TEXT", strings.Repeat("and so on ", 20)))
	m.env = append(m.env, "TROUPE_LIMITS__SESSIONS=1")
	s := m.serve()
	if log := s.stderr.String(); !strings.Contains(log, "2 sessions with open turns or runs go on") {
		t.Errorf("it says %s", log)
	}
	m.eventually("both turns are done", func() bool {
		done := 0
		for _, w := range m.workers() {
			if w.Turns == 1 {
				done++
			}
		}
		return done == 2
	})
	s.signal(syscall.SIGTERM)
	if code, _ := s.wait(); code != exitDone {
		t.Errorf("the server ended with %d: %s", code, s.stderr.String())
	}
}
