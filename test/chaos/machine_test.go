package chaos

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model/script"
)

// patience bounds every wait of these tests; nothing is expected to need it.
const patience = time.Minute

func TestMain(m *testing.M) {
	if runWriter() {
		return
	}
	dir, err := os.MkdirTemp("", "troupe-chaos-")
	if err != nil {
		panic(err)
	}
	build = sync.OnceValues(func() (string, error) {
		program := filepath.Join(dir, "troupe")
		out, err := exec.Command("go", "build", "-o", program, "github.com/troupe-dev/troupe/cmd/troupe").CombinedOutput()
		if err != nil {
			err = fmt.Errorf("build troupe: %w: %s", err, out)
		}
		return program, err
	})
	// Stores in memory are left as a crash leaves them; the actor library counts dead letters in a goroutine that ends by itself after a second.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/troupe-dev/troupe/persistence/memory.(*Store).commit"),
		goleak.IgnoreTopFunction("github.com/asynkron/protoactor-go/actor.NewDeadLetter.NewThrottle.func4.1"), goleak.Cleanup(func(code int) {
			_ = os.RemoveAll(dir)
			os.Exit(code)
		}))
}

// build makes the program once, when the first test asks for it.
var build func() (program string, err error)

// machine is an empty home with a folder to work in. Its paths are short, so that the socket fits
// into the data directory; they stand in the environment of everything that is started here, by
// which it is found again.
type machine struct {
	t                        *testing.T
	program                  string
	root, home, folder, temp string
	env                      []string // besides HOME, PATH and TMPDIR
	elsewhere                string   // the data directory, where it is not in the home
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	return newMachineIn(t, "")
}

// newMachineIn makes a machine below a folder, "" for the one of temporary files.
func newMachineIn(t *testing.T, parent string) *machine {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("processes are looked at through /proc")
	}
	program, err := build()
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.MkdirTemp(parent, "tch")
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, program: program, root: root, home: root + "/home", folder: root + "/work", temp: root + "/tmp"}
	for _, d := range []string{m.home, m.folder, m.temp} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		m.eventually("processes survive the test", func() bool { return len(m.processes()) == 0 })
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	return m
}

func (m *machine) data() string {
	if m.elsewhere != "" {
		return m.elsewhere
	}
	return m.home + "/.local/share/troupe"
}

// keepIn puts the data directory into a folder.
func (m *machine) keepIn(dir string) {
	m.elsewhere = dir + "/data"
	m.env = append(m.env, "TROUPE_DATA="+m.elsewhere)
}

func (m *machine) write(name, text string) string {
	m.t.Helper()
	path := filepath.Join(m.folder, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
	return path
}

// read gives a file of the folder; "" when there is none.
func (m *machine) read(name string) string {
	m.t.Helper()
	text, err := os.ReadFile(filepath.Join(m.folder, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.t.Fatal(err)
	}
	return string(text)
}

// serve plays a script on a loopback port and makes it the model of the machine.
func (m *machine) serve(text string, o script.ServeOptions) *httptest.Server {
	m.t.Helper()
	s, err := script.Parse("script.yaml", []byte(text))
	if err != nil {
		m.t.Fatal(err)
	}
	return m.model(script.Handler(s, o))
}

// model makes a handler the provider of the machine.
func (m *machine) model(h http.Handler) *httptest.Server {
	m.t.Helper()
	srv := httptest.NewServer(h)
	m.t.Cleanup(func() {
		_ = srv.Config.Close() // cuts what is open: Close alone waits for it
		srv.Close()
	})
	m.env = append(m.env, "OPENAI_BASE_URL="+srv.URL+"/v1")
	return srv
}

// stats are what a served script counted.
func (m *machine) stats(srv *httptest.Server) script.Stats {
	m.t.Helper()
	resp, err := http.Get(srv.URL + "/stats")
	if err != nil {
		m.t.Fatal(err)
	}
	defer resp.Body.Close()
	var s script.Stats
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
		m.t.Fatal(err)
	}
	return s
}

func (m *machine) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(m.t.Context(), m.program, args...)
	cmd.Dir = m.folder
	cmd.Env = append([]string{"HOME=" + m.home, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + m.temp}, m.env...)
	return cmd
}

// prompt is the command line of a trusted run with the served model.
func prompt(text string, more ...string) []string {
	return append([]string{"run", text, "-m", "openai/scripted", "--trust", "full", "--no-input"}, more...)
}

// ended is how a command ended.
type ended struct {
	code     int // -1: a signal
	out, err string
}

func (e ended) String() string {
	return fmt.Sprintf("ended with %d\nstdout: %.3000s\nstderr: %.3000s", e.code, e.out, e.err)
}

// run runs a command to its end.
func (m *machine) run(args ...string) ended {
	m.t.Helper()
	return m.start(args...).wait()
}

// want runs a command that must end with a code.
func (m *machine) want(code int, args ...string) ended {
	m.t.Helper()
	e := m.run(args...)
	if e.code != code {
		m.t.Fatalf("%.200q: want %d, %s", args, code, e)
	}
	return e
}

// list runs a command that prints one JSON value.
func list[T any](m *machine, args ...string) T {
	m.t.Helper()
	var v T
	e := m.want(0, append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(e.out), &v); err != nil {
		m.t.Fatalf("%q: %v: %s", args, err, e)
	}
	return v
}

// session is the id of the only session, "" when there is none.
func (m *machine) session() string {
	m.t.Helper()
	all := list[[]messages.SessionJSON](m, "ls", "sessions")
	switch len(all) {
	case 0:
		return ""
	case 1:
		return all[0].ID
	}
	m.t.Fatalf("there are %d sessions: %v", len(all), all)
	return ""
}

// sound checks that what was written holds together, by the program itself.
func (m *machine) sound(session string) {
	m.t.Helper()
	for _, args := range [][]string{{"verify", session}, {"verify"}} {
		if e := m.run(args...); e.code != 0 || !strings.Contains(e.out, " 0 findings") {
			m.t.Errorf("%q %s", args, e)
		}
	}
}

// running is a command under way.
type running struct {
	m        *machine
	cmd      *exec.Cmd
	out, err *safeBuffer
}

func (m *machine) start(args ...string) *running {
	m.t.Helper()
	r := &running{m: m, cmd: m.command(args...), out: &safeBuffer{}, err: &safeBuffer{}}
	r.cmd.Stdout, r.cmd.Stderr = r.out, r.err
	r.cmd.WaitDelay = patience
	if err := r.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	return r
}

// signal is sent to the one process; that it has ended already is no error.
func (r *running) signal(s syscall.Signal) {
	r.m.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		r.m.t.Fatal(err)
	}
}

func (r *running) wait() ended {
	r.m.t.Helper()
	bound := time.AfterFunc(patience, func() {
		_ = r.cmd.Process.Signal(syscall.SIGQUIT) // the goroutines tell where it hangs
	})
	defer bound.Stop()
	err := r.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		r.m.t.Fatal(err)
	}
	return ended{r.cmd.ProcessState.ExitCode(), r.out.String(), r.err.String()}
}

// kill ends it as the kernel does, and waits until it is gone.
func (r *running) kill() ended {
	r.m.t.Helper()
	r.signal(syscall.SIGKILL)
	return r.wait()
}

// safeBuffer is read while the process writes.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (m *machine) eventually(what string, holds func() bool) {
	m.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-limit.C:
			m.t.Errorf("%s; processes: %q", what, m.processes())
			return
		}
	}
}

// exists tells whether the folder has a file.
func (m *machine) exists(name string) bool {
	_, err := os.Stat(filepath.Join(m.folder, name))
	return err == nil
}

// processes are the command lines of everything that was started on this machine and still lives.
func (m *machine) processes() []string {
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		m.t.Fatal(err)
	}
	var found []string
	for _, dir := range all {
		line, err := os.ReadFile(dir + "/cmdline")
		if err != nil || len(line) == 0 { // gone, or a zombie
			continue
		}
		env, _ := os.ReadFile(dir + "/environ") // unreadable: of another user, and so not ours
		if bytes.Contains(line, []byte(m.root)) || bytes.Contains(env, []byte(m.root+"/")) {
			found = append(found, dir+" "+string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
		}
	}
	return found
}
