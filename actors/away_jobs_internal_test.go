package actors

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/messages"
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
