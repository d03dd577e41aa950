package actors

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// jobless is an owner that is told of the ends that are asked for.
type jobless struct{ ends []string }

func (*jobless) Deliver(context.Context, *messages.Execute, func(*messages.Progress)) (*messages.ToolReply, error) {
	return nil, context.Canceled
}
func (*jobless) Cancel(string)         {}
func (*jobless) Settle(string, uint32) {}
func (*jobless) TakesJobs() bool       { return true }
func (o *jobless) EndJob(id, _ string) { o.ends = append(o.ends, id) }

// TestJobsThatAreKnownAreNotLostHowManyAnOwnerTellsOf: of many agents there may run more than a connection may tell of and nobody knows here.
func TestJobsThatAreKnownAreNotLostHowManyAnOwnerTellsOf(t *testing.T) {
	svc, p, o := &Services{Redact: hides("s3cret"), Limits: Limits{Jobs: 16}, Now: time.Now}, Place{"ses_1", "laptop:~/x"}, &jobless{}
	epoch, _, fail := svc.Owners.Connect(p, o, "", false)
	if fail != nil {
		t.Fatal(fail)
	}
	var told []*messages.OwnedJob
	for i := range maxJobsTold + 16 {
		id := fmt.Sprintf("job_%016d", i)
		worker := fmt.Sprint("wrk_", i%8)
		if svc.addAway(&awayJob{id: id, worker: worker, place: p}, time.Now()) == nil {
			t.Fatal("it is known already")
		}
		told = append(told, &messages.OwnedJob{JobId: id, WorkerId: worker, State: messages.JobRunning})
	}
	svc.OwnersJobs(nil, p, epoch, told[:len(told)-1], &messages.SessionView{})
	if all := svc.away.of(p); len(all) != len(told)-1 || svc.away.find(told[len(told)-1].GetJobId()) != nil {
		t.Errorf("of %d jobs that run %d are known", len(told)-1, len(all))
	}
	if len(o.ends) > 0 {
		t.Errorf("the end of %v is asked for", o.ends)
	}
}

// TestAJobWhoseEndWasToldDoesNotRunAgain: a word of an older connection may come late. One that was given up, and whose end nobody told, runs if its owner says so.
func TestAJobWhoseEndWasToldDoesNotRunAgain(t *testing.T) {
	for end, again := range map[string]bool{tools.JobExited: false, tools.JobKilled: false, tools.JobFailed: false, tools.JobUnknown: true} {
		svc, p, o, sys := &Services{Redact: hides("s3cret"), Limits: Limits{Jobs: 16}, Now: time.Now, folders: newFolders()}, Place{"ses_1", "laptop:~/x"}, &jobless{}, actor.NewActorSystem()
		epoch, _, fail := svc.Owners.Connect(p, o, "", false)
		if fail != nil {
			t.Fatal(fail)
		}
		const id = "job_0000000000000001"
		if svc.addAway(&awayJob{id: id, worker: "wrk_1", place: p}, time.Now()) == nil {
			t.Fatal("it is known already")
		}
		v := &messages.SessionView{Workers: []*messages.WorkerView{{Id: "wrk_1"}}}
		tell := func(state string) *messages.Failure {
			return svc.OwnersJob(sys, &messages.OwnedJob{JobId: id, WorkerId: "wrk_1", SessionId: p.Session, Uri: p.URI, Epoch: epoch, State: state}, v)
		}
		if fail := tell(end); fail != nil {
			t.Fatal(fail)
		}
		late := tell(messages.JobRunning)
		if runs := svc.away.find(id) != nil; runs != again || (late == nil) != again || late.GetCode() != map[bool]string{false: messages.CodeConflict}[again] {
			t.Errorf("after %s its owner is told %v, and it runs: %v", end, late, runs)
		}
		if got := svc.away.peek("wrk_1").Owned(id).GetState(); !again && got != end {
			t.Errorf("after %s it is %s", end, got)
		}
		// The end may be told between the look at what is known and what is made of it.
		if !again && svc.addAway(&awayJob{id: id, worker: "wrk_1", place: p, told: true}, time.Now()) != nil {
			t.Errorf("after %s it is taken on", end)
		}
	}
}
