package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/troupe-dev/troupe/messages"
)

// cable is a line to a server that can be cut, and led to another one.
type cable struct {
	net.Listener

	mu   sync.Mutex
	to   string
	open []net.Conn
}

func newCable(t *testing.T, to string) *cable {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{Listener: l, to: strings.TrimPrefix(to, "http://")}
	t.Cleanup(func() { _ = l.Close(); c.cut("") })
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			c.mu.Lock()
			to := c.to
			c.mu.Unlock()
			there, err := net.Dial("tcp", to)
			if err != nil {
				_ = from.Close()
				continue
			}
			c.mu.Lock()
			c.open = append(c.open, from, there)
			c.mu.Unlock()
			go func() { _, _ = io.Copy(there, from); _ = there.Close() }()
			go func() { _, _ = io.Copy(from, there); _ = from.Close() }()
		}
	}()
	return c
}

// cut ends every connection; new ones lead to the given server, or nowhere.
func (c *cable) cut(to string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.to = strings.TrimPrefix(to, "http://")
	for _, conn := range c.open {
		_ = conn.Close()
	}
	c.open = nil
}

func (c *cable) url() string { return "http://" + c.Addr().String() }

// post sends a request and reads the answer.
func (s *served) post(path, body string, into any) {
	s.t.Helper()
	res, err := http.Post(s.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(into); err != nil || res.StatusCode >= 300 {
		s.t.Fatalf("%s: %s %v", path, res.Status, err)
	}
}

// newSession makes a session on the server.
func (s *served) newSession() string {
	s.t.Helper()
	var v messages.SessionJSON
	s.post("/api/sessions", `{"ask":true}`, &v)
	return v.ID
}

// begin calls a tool; the answer comes later. The same id again gives the same answer.
func (s *served) begin(session, id, tool string, args map[string]any) <-chan messages.CalledJSON {
	s.t.Helper()
	body, err := json.Marshal(map[string]any{"call_id": id, "arguments": args})
	if err != nil {
		s.t.Fatal(err)
	}
	ch := make(chan messages.CalledJSON, 1)
	url := s.url + "/api/sessions/" + session + "/tools/" + tool
	go func() {
		defer close(ch)
		res, err := http.Post(url, "application/json", bytes.NewReader(body))
		if err != nil {
			return // the server was killed
		}
		defer res.Body.Close()
		var r messages.CalledJSON
		if json.NewDecoder(res.Body).Decode(&r) == nil {
			ch <- r
		}
	}()
	return ch
}

// share runs `troupe attach` of folder a, and waits until it is attached.
func (m *machine) share(session, url string, args ...string) *running {
	m.t.Helper()
	r := m.start(append([]string{"attach", "a", "--session", session, "--as", "lap", "--server", url}, args...)...)
	r.waitFor("lap:" + m.real("a"))
	m.t.Cleanup(func() {
		_ = r.cmd.Process.Kill() // it has ended, unless the test failed
		_ = r.cmd.Wait()
	})
	return r
}

func (m *machine) real(folder string) string {
	m.t.Helper()
	dir, err := filepath.EvalSymlinks(m.folder(folder))
	if err != nil {
		m.t.Fatal(err)
	}
	return dir
}

// once runs until the folder has a file `go`, and leaves a line for each time that it ran.
const once = "echo ran >> runs; touch begun; while test ! -e go; do sleep 0.05; done; echo finished"

func (m *machine) runs() int {
	b, err := os.ReadFile(filepath.Join(m.folder("a"), "runs"))
	if err != nil {
		return 0
	}
	return strings.Count(string(b), "ran\n")
}

func TestASharedFolderIsWorkedInAndItsMachineHasTheLastWord(t *testing.T) {
	m := newMachine(t)
	s := m.serve()
	session := s.newSession()
	at := func(path string) map[string]any { return map[string]any{"path": path, "workspace_id": "lap"} }
	r := m.share(session, s.url, "--read-only", "--trust", "full")
	m.write("a/note", "x")
	if got := <-s.begin(session, "1", "read_file", at("note")); !strings.Contains(got.Content, "x") || got.ErrorCode != "" {
		t.Errorf("read: %+v", got)
	}
	if got := <-s.begin(session, "2", "read_file", at("../a/note")); got.ErrorCode != "invalid_path" {
		t.Errorf("outside: %+v", got)
	}
	if got := <-s.begin(session, "3", "write_file", map[string]any{"path": "new", "content": "x", "workspace_id": "lap"}); got.ErrorCode != "tool_not_found" {
		t.Errorf("write: %+v", got)
	}
	r.signal(syscall.SIGINT)
	if code, _ := r.wait(); code != 0 || !strings.Contains(r.stderr.String(), "nothing is changed") || !strings.Contains(r.stderr.String(), "is not shared any more") {
		t.Errorf("it ended with %d: %s", code, r.stderr.String())
	}
	// Restricted here, though the server has it as trusted since the first time: nobody sits here, so that it is refused.
	r = m.share(session, s.url)
	if got := <-s.begin(session, "4", "exec", map[string]any{"command": "touch x", "workspace_id": "lap"}); got.ErrorCode == "" {
		t.Errorf("exec in a restricted folder: %+v", got)
	}
	r.signal(syscall.SIGINT)
	_, _ = r.wait()
	if _, err := os.Stat(filepath.Join(m.folder("a"), "x")); err == nil {
		t.Error("it ran")
	}
}

// TestHooksOfTheMachineOfASharedFolderRunThere has a hook that refuses, and one that hears of calls.
func TestHooksOfTheMachineOfASharedFolderRunThere(t *testing.T) {
	m := newMachine(t)
	s := m.serve()
	session := s.newSession()
	log := filepath.Join(m.folder("a"), "heard")
	conf := m.write("own.yaml", "sandbox: {exec: none}\nhooks:\n  before_call: ['grep -q forbidden && { echo not here >&2; exit 1; } || true']\n  after_call: ['cat >>heard']\n  tools: [write_file]\n")
	r := m.share(session, s.url, "--trust", "full", "--config", conf)
	write := func(id, path string) messages.CalledJSON {
		return <-s.begin(session, id, "write_file", map[string]any{"path": path, "content": "x", "workspace_id": "lap"})
	}
	if got := write("1", "forbidden"); got.ErrorCode != "permission_denied" || !strings.Contains(got.Content, "not here") {
		t.Errorf("refused by the hook: %+v", got)
	}
	if _, err := os.Stat(filepath.Join(m.folder("a"), "forbidden")); err == nil {
		t.Error("it was written")
	}
	if got := write("2", "fine"); got.ErrorCode != "" {
		t.Errorf("allowed: %+v", got)
	}
	if b, err := os.ReadFile(log); err != nil || strings.Count(string(b), `"after_call"`) != 1 || !strings.Contains(string(b), session) {
		t.Errorf("heard of was %q, %v", b, err)
	}
	r.signal(syscall.SIGINT)
	_, _ = r.wait()
}

// TestASharedFolderStaysWhereTheConfigurationConfinesIt: without an engine it is not shared, by whichever way it comes to the folder.
func TestASharedFolderStaysWhereTheConfigurationConfinesIt(t *testing.T) {
	m := newMachine(t)
	if err := os.Mkdir(m.folder("a/below"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := m.serve()
	session := s.newSession()
	config := m.write("boxed.yaml", "sandbox: {image: localhost/none}\nworkspaces: {proj: {uri: \"local:"+m.folder("a")+"\", mode: container}}\n")
	m.env = []string{"PATH=" + m.folder("b")} // no engine is found
	for _, dir := range []string{"a", "a/below"} {
		code, out, stderr := m.run("attach", dir, "--session", session, "--as", "lap", "--server", s.url, "--trust", "full", "--config", config)
		if code != 78 || out != "" || !strings.Contains(stderr, "run in a container, as workspaces.NAME.mode says, and none can be made") {
			t.Errorf("%s: %d %s%s", dir, code, out, stderr)
		}
	}
	r := m.start("attach", "b", "--session", session, "--as", "lap", "--server", s.url, "--trust", "full", "--config", config)
	r.waitFor("lap:" + m.real("b"))
	r.signal(syscall.SIGINT)
	_, _ = r.wait()
}

func TestACallOutlivesAConnectionThatIsCut(t *testing.T) {
	m := newMachine(t)
	s := m.serve()
	c := newCable(t, s.url)
	session := s.newSession()
	r := m.share(session, c.url(), "--trust", "full")
	got := s.begin(session, "1", "exec", map[string]any{"command": once, "workspace_id": "lap"})
	m.begun("a")
	c.cut(s.url)
	r.waitFor("lap:" + m.real("a"))
	m.write("a/go", "")
	if x := <-got; x.Content != "finished\n" || x.ErrorCode != "" || m.runs() != 1 {
		t.Errorf("it ran %d times and came to %+v", m.runs(), x)
	}
	r.signal(syscall.SIGINT)
	_, _ = r.wait()
}

func TestACallOfAMachineThatWasKilledIsNamedUnknownAndDoesNotRunAgain(t *testing.T) {
	m := newMachine(t)
	s := m.serve()
	session := s.newSession()
	r := m.share(session, s.url, "--trust", "full")
	got := s.begin(session, "1", "exec", map[string]any{"command": once, "workspace_id": "lap"})
	m.begun("a")
	r.signal(syscall.SIGKILL)
	_, _ = r.wait()
	m.eventually("nobody says that the machine is not connected", func() bool { return m.why(session).For.Kind == "owner" })
	r = m.share(session, s.url, "--trust", "full")
	if x := <-got; x.ErrorCode != "interrupted" || x.Status != "interrupted_unknown" || m.runs() != 1 {
		t.Errorf("it ran %d times and came to %+v", m.runs(), x)
	}
	m.write("a/go", "")
	if x := <-s.begin(session, "2", "exec", map[string]any{"command": once, "workspace_id": "lap"}); x.Content != "finished\n" || m.runs() != 2 {
		t.Errorf("the next one: %+v", x)
	}
	r.signal(syscall.SIGINT)
	_, _ = r.wait()
}

// A file is there whole or not at all, whenever its writer was killed, and what is said of it is true.
func TestAWriteOfAMachineThatWasKilledIsWholeOrUnknown(t *testing.T) {
	m := newMachine(t)
	s := m.serve()
	session := s.newSession()
	text := strings.Repeat("0123456789abcde\n", 1<<18)
	for i := range 2 {
		r := m.share(session, s.url, "--trust", "full")
		name := fmt.Sprint("file", i)
		got := s.begin(session, name, "write_file", map[string]any{"path": name, "content": text, "workspace_id": "lap"})
		for begun := false; !begun; { // until something of it is in the folder
			entries, err := os.ReadDir(m.folder("a"))
			begun = err != nil || len(entries) > i
		}
		<-time.After(time.Duration(3*i) * time.Millisecond) // somewhere on the way
		r.signal(syscall.SIGKILL)
		_, _ = r.wait()
		r = m.share(session, s.url, "--trust", "full")
		x := <-got
		b, err := os.ReadFile(filepath.Join(m.folder("a"), name))
		whole := err == nil && string(b) == text
		if x.ErrorCode != "" && x.ErrorCode != "interrupted" && x.ErrorCode != "client_not_connected" || x.ErrorCode == "" && !whole || x.ErrorCode == "client_not_connected" && err == nil || err == nil && !whole {
			t.Errorf("killed after %d ms: %q, %d bytes, %v", 3*i, x.ErrorCode, len(b), err)
		}
		t.Logf("killed after %d ms: %q, whole: %v", 3*i, x.ErrorCode, whole)
		r.signal(syscall.SIGINT)
		_, _ = r.wait()
	}
}

func TestAServerThatWasKilledFindsOutFromTheOwnerWhatBecameOfItsCall(t *testing.T) {
	for what, gone := range map[string]bool{"the owner knows": false, "the owner was killed, too": true} {
		t.Run(what, func(t *testing.T) {
			m := newMachine(t)
			s := m.serve()
			c := newCable(t, s.url)
			session := s.newSession()
			r := m.share(session, c.url(), "--trust", "full")
			args := map[string]any{"command": once, "workspace_id": "lap"}
			s.begin(session, "1", "exec", args)
			m.begun("a")
			s.signal(syscall.SIGKILL)
			_, _ = s.wait()
			if gone {
				r.signal(syscall.SIGKILL)
				_, _ = r.wait()
			}
			s = m.serve()
			c.cut(s.url)
			if gone {
				r = m.share(session, c.url(), "--trust", "full")
			} else {
				r.waitFor("lap:" + m.real("a"))
			}
			m.write("a/go", "")
			x := <-s.begin(session, "1", "exec", args)
			if gone && x.ErrorCode != "interrupted" || !gone && x.Content != "finished\n" || m.runs() != 1 {
				t.Errorf("it ran %d times and came to %+v", m.runs(), x)
			}
			r.signal(syscall.SIGINT)
			_, _ = r.wait()
		})
	}
}

// terminal is one on which a command runs.
type terminal struct {
	t   *testing.T
	tty *os.File
	cmd *exec.Cmd
	all strings.Builder
}

// until reads until a text stands there once more than before.
func (s *terminal) until(text string) {
	s.t.Helper()
	before := s.all.Len()
	for b := make([]byte, 1024); !strings.Contains(s.all.String()[before:], text); {
		n, err := s.tty.Read(b)
		s.all.Write(b[:n])
		if err != nil {
			s.t.Fatalf("it ended before %q: %v\n%s", text, err, s.all.String())
		}
	}
}

func (s *terminal) types(text string) {
	s.t.Helper()
	if _, err := io.WriteString(s.tty, text); err != nil {
		s.t.Fatal(err)
	}
}

func TestWhoSitsAtASharedFolderIsAskedOncePerCall(t *testing.T) {
	m := newMachine(t)
	s := m.serve()
	session := s.newSession()
	cmd := m.command("attach", "a", "--session", session, "--as", "lap", "--server", s.url)
	cmd.Env = append(cmd.Env, "NO_COLOR=1")
	tty, err := pty.Start(cmd)
	if err != nil {
		t.Skipf("no terminal can be made here: %v", err)
	}
	defer tty.Close()
	p := &terminal{t: t, tty: tty, cmd: cmd}
	p.until("Ctrl-C ends it")
	write := func(id, name string) <-chan messages.CalledJSON {
		return s.begin(session, id, "write_file", map[string]any{"path": name, "content": "x", "workspace_id": "lap"})
	}
	// The server asks, and shows it here: who approves it here is not asked again.
	got := write("1", "one")
	p.until("cancel the turn] ")
	p.types("y\n")
	if x := <-got; x.ErrorCode != "" || !m.made("one") {
		t.Errorf("approved here: %+v", x)
	}
	p.until("write_file")
	// Somebody else approves it: this machine has the last word.
	got = write("2", "two")
	p.until("cancel the turn] ")
	var all []messages.ApprovalJSON
	m.eventually("nothing waits", func() bool {
		res, err := http.Get(s.url + "/api/approvals")
		if err != nil {
			return false
		}
		defer res.Body.Close()
		return json.NewDecoder(res.Body).Decode(&all) == nil && len(all) == 1 && len(all[0].Shown) > 0 // it is said once it stands there
	})
	if all[0].Kind != "diff" || !strings.Contains(all[0].Preview, "+x") {
		t.Errorf("what it changes is shown as %s: %s", all[0].Kind, all[0].Preview)
	}
	if len(all[0].Shown) != 1 || all[0].Shown[0].By != "troupe attach" {
		t.Errorf("it is shown to %+v", all[0].Shown)
	}
	res, err := http.Post(s.url+"/api/approvals/"+all[0].ID, "application/json", strings.NewReader(`{"decision":"approved"}`))
	if err != nil || res.StatusCode >= 300 {
		t.Fatalf("%v %v", res, err)
	}
	_ = res.Body.Close()
	p.until("Run it on this machine?")
	p.types("n not that one\n")
	if x := <-got; x.ErrorCode != "user_rejected" || !strings.Contains(x.Content, "not that one") || m.made("two") {
		t.Errorf("refused here: %+v", x)
	}
	p.types("\x03")
	p.until("is not shared any more")
	if code := exitOf(t, cmd.Wait()); code != 0 || strings.Count(p.all.String(), "Run it on this machine?") != 1 {
		t.Errorf("it ended with %d: %s", code, p.all.String())
	}
}

func (m *machine) made(name string) bool {
	_, err := os.Stat(filepath.Join(m.folder("a"), name))
	return err == nil
}
