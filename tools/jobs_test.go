package tools_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/tools/sandbox"
)

// shop is a box with jobs; it notes what holds the workspace.
type shop struct {
	*box
	mu   sync.Mutex
	held map[string]func(string)
	n    int
	all  sync.WaitGroup
}

func newShop(t *testing.T, most int) *shop {
	t.Helper()
	s := &shop{box: newBox(t, sandbox.Auto, messages.Trust_FULL), held: map[string]func(string){}}
	s.tc.Jobs = tools.NewJobs(most, func(fn func()) { s.all.Go(fn) })
	s.tc.Hold = func(id string, end func(string)) (func(), error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held[id] = end
		return func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.held, id)
		}, nil
	}
	t.Cleanup(func() {
		s.tc.Jobs.Close()
		s.all.Wait()
		if len(s.held) > 0 {
			t.Errorf("the workspace is still held: %v", s.held)
		}
	})
	return s
}

// start leaves a command running and returns the job's id.
func (s *shop) start(t *testing.T, command string) string {
	t.Helper()
	s.n++
	s.tc.ExecID = fmt.Sprintf("exe_%d", s.n)
	args, err := json.Marshal(map[string]any{"command": command, "background": true})
	if err != nil {
		t.Fatal(err)
	}
	e := s.run(t, string(args))
	id, _ := e.Meta["job_id"].(string)
	if !e.OK || !strings.Contains(e.Content, id) || id != fmt.Sprintf("job_%d", s.n) {
		t.Fatalf("%+v", e)
	}
	return id
}

func (s *shop) call(t *testing.T, name, format string, args ...any) *tools.Envelope {
	t.Helper()
	tool := map[string]tools.Tool{"job_output": tools.JobOutput(), "job_list": tools.JobList(), "job_kill": tools.JobKill()}[name]
	res, err := tool.Run(s.tc, json.RawMessage(fmt.Sprintf(format, args...)))
	return tools.NewEnvelope("c", name, res, err)
}

func matches(pattern, text string) bool { return regexp.MustCompile(pattern).MatchString(text) }

func TestAJobRunsOnAndItsOutputIsReadInParts(t *testing.T) {
	s := newShop(t, 0)
	id := s.start(t, `echo one; while [ ! -e go ]; do sleep 0.05; done; echo two; printf half; exit 3`)
	e := s.call(t, "job_output", `{"job_id":%q,"wait_ms":60000}`, id)
	if !matches(`^one\n\[running for \d+ s; byte_offset 4 is next\]$`, e.Content) || e.Meta["state"] != "running" || e.Meta["next_offset"] != int64(4) {
		t.Fatalf("%+v", e)
	}
	if e := s.call(t, "job_output", `{"job_id":%q,"byte_offset":4,"wait_ms":1}`, id); !matches(`^\[running for \d+ s; byte_offset 4 is next\]$`, e.Content) {
		t.Errorf("%+v", e)
	}
	if e := s.call(t, "job_list", `{}`); !strings.HasPrefix(e.Content, id+": echo one; while") || !matches(`\(running for \d+ s\)\n$`, e.Content) {
		t.Errorf("%+v", e)
	}
	if len(s.held) != 1 || s.tc.Jobs.Running() != 1 {
		t.Errorf("held: %v", s.held)
	}
	write(t, filepath.Join(s.root, "go"), "")
	e = s.call(t, "job_output", `{"job_id":%q,"byte_offset":4,"wait_ms":60000}`, id)
	for e.Meta["state"] == "running" {
		e = s.call(t, "job_output", `{"job_id":%q,"byte_offset":%d,"wait_ms":60000}`, id, e.Meta["next_offset"])
	}
	if !strings.HasSuffix(e.Content, "half\n[exit code 3; byte_offset 12 is next]") || e.Meta["exit_code"] != 3 {
		t.Errorf("%+v", e)
	}
	if e := s.call(t, "job_output", `{"job_id":%q}`, id); e.Content != "one\ntwo\nhalf\n[exit code 3; byte_offset 12 is next]" {
		t.Errorf("%+v", e)
	}
	if e := s.call(t, "job_kill", `{"job_id":%q}`, id); e.Content != "The job "+id+" had ended before (exit code 3)." {
		t.Errorf("%+v", e)
	}
	s.all.Wait()
	if kept, err := os.ReadFile(filepath.Join(s.home, "spill", id)); err != nil || string(kept) != "one\ntwo\nhalf\n[job exited: exit code 3]\n" {
		t.Errorf("kept in home: %q, %v", kept, err)
	}
	s.tc.Jobs = tools.NewJobs(0, nil) // as after a restart
	if e := s.call(t, "job_output", `{"job_id":%q,"byte_offset":4}`, id); e.Content != "two\nhalf\n[exit code 3; byte_offset 12 is next]" || e.Meta["state"] != "exited" || e.Meta["exit_code"] != 3 {
		t.Errorf("%+v", e)
	}
	write(t, filepath.Join(s.home, "spill", id), "two\nhalf\n[job done: exit code 3]\n") // as an older version left it
	if e := s.call(t, "job_output", `{"job_id":%q,"byte_offset":4}`, id); !strings.HasPrefix(e.Content, "half\n[job done: exit code 3]\n[it is no more") || e.Meta["state"] != "gone" {
		t.Errorf("%+v", e)
	}
}

func TestAJobThatIsNoMoreSaysSo(t *testing.T) {
	s := newShop(t, 0)
	for _, name := range []string{"job_output", "job_kill"} {
		if e := s.call(t, name, `{"job_id":"job_0198"}`); e.ErrorCode != tools.CodeFileNotFound || !strings.Contains(e.Content, "is no more") {
			t.Errorf("%s: %+v", name, e)
		}
		for _, id := range []string{"nonsense", "../../etc/passwd", "job_../x", "job_"} {
			if e := s.call(t, name, `{"job_id":%q}`, id); e.ErrorCode != tools.CodeFileNotFound || !strings.Contains(e.Content, "There is no job") {
				t.Errorf("%s %s: %+v", name, id, e)
			}
		}
	}
	s.tc.Jobs, s.tc.Home = nil, nil
	if e := s.call(t, "job_output", `{"job_id":"job_0198"}`); e.ErrorCode != tools.CodeFileNotFound {
		t.Errorf("%+v", e)
	}
	if e := s.call(t, "job_list", `{}`); e.Content != "(no jobs)" {
		t.Errorf("%+v", e)
	}
	if e := s.run(t, `{"command":"true","background":true}`); e.ErrorCode != tools.CodeInvalidArguments {
		t.Errorf("without a session: %+v", e)
	}
	s.tc.Jobs = tools.NewJobs(0, nil)
}

func TestAKilledJobLeavesNothingRunning(t *testing.T) {
	s := newShop(t, 0)
	n := fmt.Sprintf("77%d", os.Getpid())
	for what, end := range map[string]func(id string){
		"job_kill": func(id string) {
			if e := s.call(t, "job_kill", `{"job_id":%q}`, id); !strings.Contains(e.Content, "killed: job_kill asked for it") || e.Meta["state"] != "killed" {
				t.Errorf("%+v", e)
			}
		},
		"the workspace": func(id string) {
			s.mu.Lock()
			end := s.held[id]
			s.mu.Unlock()
			end("somebody waits")
		},
		"the end of its agent": func(string) { s.tc.Jobs.Close() }, // the last: none begins after it
	} {
		s.tc.Jobs = tools.NewJobs(0, func(fn func()) { s.all.Go(fn) })
		id := s.start(t, `sleep `+n+` & setsid sleep `+n+` & echo up; sleep `+n)
		if e := s.call(t, "job_output", `{"job_id":%q,"wait_ms":60000}`, id); !strings.HasPrefix(e.Content, "up\n") {
			t.Fatalf("%s: %+v", what, e)
		}
		end(id)
		s.all.Wait()
		if left := running(t, n); len(left) > 0 || len(s.held) > 0 {
			t.Errorf("%s: left: %v, held: %v", what, left, s.held)
		}
	}
	s.tc.Jobs.Close()
	if e := s.run(t, `{"command":"true","background":true}`); e.ErrorCode != tools.CodeCancelled {
		t.Errorf("begun after the end: %+v", e)
	}
}

// running lists the processes of this machine that name a number.
func running(t *testing.T, n string) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Skipf("no list of processes on this system: %v", err)
	}
	var found []string
	for _, p := range entries {
		line, err := os.ReadFile("/proc/" + p.Name() + "/cmdline")
		if err == nil && strings.Contains(string(line), n) && strings.Contains(string(line), "sleep") {
			found = append(found, string(line))
		}
	}
	return found
}

func TestJobsAreBoundedInNumberTimeAndOutput(t *testing.T) {
	s := newShop(t, 2)
	first, second := s.start(t, "sleep 1000"), s.start(t, "sleep 1000")
	s.tc.ExecID = "exe_more"
	if e := s.run(t, `{"command":"true","background":true}`); e.ErrorCode != tools.CodeValidationFailed || len(s.held) != 2 {
		t.Errorf("%+v", e)
	}
	s.call(t, "job_kill", `{"job_id":%q}`, first)
	s.call(t, "job_kill", `{"job_id":%q}`, second)
	for i := range 60 { // ended ones do not count, and are forgotten in the end
		id := s.start(t, fmt.Sprint("echo ", i))
		for e := s.call(t, "job_output", `{"job_id":%q}`, id); e.Meta["state"] == "running"; {
			e = s.call(t, "job_output", `{"job_id":%q,"byte_offset":%d,"wait_ms":60000}`, id, e.Meta["next_offset"])
		}
	}
	if e := s.call(t, "job_list", `{}`); strings.Count(e.Content, "\n") > 40 || !strings.Contains(e.Content, "echo 59 (exit code 0)") {
		t.Errorf("%s", e.Content)
	}
	id := s.start(t, "yes 'a line of ä text'")
	e := s.call(t, "job_output", `{"job_id":%q,"byte_offset":100000000,"wait_ms":60000}`, id)
	if e.Meta["state"] != "killed" || !strings.Contains(e.Content, "printed more than 64 MiB") {
		t.Errorf("%+v", e)
	}
	e = s.call(t, "job_output", `{"job_id":%q}`, id)
	if len(e.Content) > 40_000 || !e.Truncated || !strings.Contains(e.Content, "are not kept]") || !strings.Contains(e.Content, "there is more") || strings.Contains(e.Content, "\uFFFD") {
		t.Errorf("%d bytes: %.100s", len(e.Content), e.Content)
	}
	s.all.Wait()
	if info, err := os.Stat(filepath.Join(s.home, "spill", id)); err != nil || info.Size() > 2<<20 {
		t.Errorf("%v, %v", info, err)
	}
	before := s.call(t, "job_output", `{"job_id":%q,"byte_offset":66000000}`, id)
	running := s.tc.Jobs
	s.tc.Jobs = tools.NewJobs(0, nil) // as after a restart
	after := s.call(t, "job_output", `{"job_id":%q,"byte_offset":66000000}`, id)
	if line, _, _ := strings.Cut(before.Content, "\n"); before.Meta["next_offset"] != after.Meta["next_offset"] || !strings.HasPrefix(after.Content, line+"\n") {
		t.Errorf("an offset means something else afterwards: %v, %v, %.60q, %.60q", before.Meta, after.Meta, before.Content, after.Content)
	}
	s.tc.Jobs = running
	s.tc.ExecID = "exe_slow"
	s.run(t, `{"command":"sleep 1000","background":true,"timeout_ms":200}`)
	if e := s.call(t, "job_output", `{"job_id":"job_slow","wait_ms":60000}`); !strings.Contains(e.Content, "[killed: it took longer than 200 ms") {
		t.Errorf("%+v", e)
	}
}

// A secret that a job prints in two pieces is not shown in two pieces.
func TestSecretsAreTakenOutOfWhatJobsPrint(t *testing.T) {
	s := newShop(t, 0)
	s.tc.Redact = func(text string) string { return strings.ReplaceAll(text, "hunter2hunter2", "[secret]") }
	id := s.start(t, `printf hunter2; while [ ! -e go ]; do sleep 0.05; done; echo hunter2; echo`)
	if e := s.call(t, "job_output", `{"job_id":%q,"wait_ms":300}`, id); strings.Contains(e.Content, "hunter2") {
		t.Errorf("%+v", e)
	}
	write(t, filepath.Join(s.root, "go"), "")
	if e := s.call(t, "job_output", `{"job_id":%q,"wait_ms":60000}`, id); !strings.HasPrefix(e.Content, "[secret]\n") {
		t.Errorf("%+v", e)
	}
}

func TestAWaitForOutputEndsWithItsCall(t *testing.T) {
	s := newShop(t, 0)
	id := s.start(t, "sleep 1000")
	ctx, cancel := context.WithCancel(context.Background())
	s.tc.Signal = ctx
	cancel()
	if e := s.call(t, "job_output", `{"job_id":%q,"wait_ms":60000}`, id); e.ErrorCode != tools.CodeCancelled {
		t.Errorf("%+v", e)
	}
}
