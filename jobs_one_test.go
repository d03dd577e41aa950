package troupe_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
)

// TestOneJobIsEndedAndTheOthersGoOn: whose it is ever, and its agent reads who ended it.
func TestOneJobIsEndedAndTheOthersGoOn(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: asks(), Sandbox: unconfined(t), DataDir: t.TempDir()})
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: folder(t, nil), Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	other, err := rt.Session(ctx, troupe.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("ü", 300) // in bytes it is cut in the middle of one
	for range 2 {
		prompted(ctx, t, s, `exec {"command":"sleep 1000; echo `+long+`","background":true}`)
	}
	jobs := func() []*messages.BackgroundJob {
		return ask[*messages.JobCount](t, rt, &messages.ToSession{SessionId: s.ID(), Command: &messages.ToSession_CountJobs{CountJobs: &messages.CountJobs{}}}).GetJobs()
	}
	end := func(session, job string) error {
		_, err := rt.Ask(ctx, &messages.ToSession{SessionId: session, Command: &messages.ToSession_EndJob{EndJob: &messages.EndJob{JobId: job, By: "ann", Reason: "enough\nof " + long}}})
		return err
	}
	all := jobs()
	if len(all) != 2 {
		t.Fatalf("%v", all)
	}
	for _, j := range all {
		if c := j.GetCommand(); !strings.HasPrefix(c, "sleep 1000; echo ü") || !strings.HasSuffix(c, "ü…") || len(c) > 210 || strings.Contains(c, "\n") {
			t.Errorf("it is shown as %q", c)
		}
	}
	first := all[0].GetJobId()
	if err := end(other.ID(), first); failureCode(err) != messages.CodeNotFound {
		t.Errorf("by another session: %v", err)
	}
	if err := end(s.ID(), first); err != nil {
		t.Fatal(err)
	}
	if left := jobs(); len(left) != 1 || left[0].GetJobId() != all[1].GetJobId() {
		t.Errorf("left are %v", left)
	}
	for _, none := range []string{first, "", "job_none"} {
		if err := end(s.ID(), none); failureCode(err) != messages.CodeNotFound {
			t.Errorf("%q: %v", none, err)
		}
	}
	ended := 0
	told, err := rt.Audit(ctx, s.ID())
	for _, e := range told {
		if e.GetKind() != "job" {
			continue
		}
		if ended++; e.GetDecision() != "ended" || e.GetBy() != "ann" || e.GetJobId() != first || !strings.HasPrefix(e.GetWhat(), "sleep 1000") ||
			!strings.HasPrefix(e.GetWhy(), "enough of üü") || e.GetWorkspace() == "" || e.GetAgent() == "" {
			t.Errorf("the audit says %v", e)
		}
	}
	if err != nil || ended != 1 { // what was refused is no act
		t.Errorf("%d ends in the audit: %v", ended, err)
	}
	if said := prompted(ctx, t, s, fmt.Sprintf(`job_output {"job_id":%q}`, first)); !strings.Contains(said, "[killed: ended by ann: enough of üü") {
		t.Errorf("its agent reads %q", said)
	}
}
