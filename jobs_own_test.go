package troupe_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
)

// TestAJobIsItsAgentsOwnAndThePeoplesOfTheSession: another agent of the session neither sees nor ends it; a person ends all.
func TestAJobIsItsAgentsOwnAndThePeoplesOfTheSession(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: asks(), Sandbox: unconfined(t), DataDir: t.TempDir()})
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: folder(t, nil), Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	other, err := s.NewWorker(ctx, troupe.WorkerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	says := func(w *troupe.Worker, text string) string {
		t.Helper()
		res, err := w.Run(ctx, text)
		if err != nil || res.Outcome != "done" {
			t.Fatalf("%s: %+v, %v", text, res, err)
		}
		return res.Text
	}
	const forever = `exec {"command":"echo up; sleep 1000","background":true}`
	id := regexp.MustCompile(`job_[0-9a-f]+`)
	mine, theirs := id.FindString(says(s.Worker, forever)), id.FindString(says(other, forever))
	if mine == "" || theirs == "" {
		t.Fatalf("jobs %q and %q", mine, theirs)
	}
	for w, foreign := range map[*troupe.Worker]string{s.Worker: theirs, other: mine} {
		if said := says(w, `job_list {}`); strings.Contains(said, foreign) {
			t.Errorf("it sees %s: %s", foreign, said)
		}
		for _, tool := range []string{"job_kill", "job_output"} {
			if said := says(w, fmt.Sprintf(`%s {"job_id":%q}`, tool, foreign)); !strings.Contains(said, "no more") {
				t.Errorf("%s of another's: %s", tool, said)
			}
		}
	}
	running := func() int32 {
		t.Helper()
		return ask[*messages.JobCount](t, rt, &messages.ToSession{SessionId: s.ID(), Command: &messages.ToSession_CountJobs{CountJobs: &messages.CountJobs{}}}).GetBackground()
	}
	if n := running(); n != 2 {
		t.Errorf("%d jobs run", n)
	}
	for w, own := range map[*troupe.Worker]string{s.Worker: mine, other: theirs} { // by the program, for a person
		if r, err := w.Call(ctx, "job_kill", map[string]any{"job_id": own}); err != nil || r.GetErrorCode() != "" {
			t.Errorf("%s: %v %v", own, r, err)
		}
	}
	for n := running(); n != 0; n = running() {
		select {
		case <-ctx.Done():
			t.Fatalf("%d jobs go on", n)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
