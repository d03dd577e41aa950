package gateway_test

import (
	"context"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
)

// keeping is a house that looks after jobs of owners.
type keeping struct {
	*owning
	told    chan *messages.OwnedJob
	refuses *messages.Failure
}

func (k *keeping) OwnedJob(_ context.Context, m *messages.OwnedJob) error {
	k.told <- m
	if k.refuses != nil {
		return k.refuses
	}
	return nil
}

// jobOwner is an owner that may leave commands running.
type jobOwner interface {
	TakesJobs() bool
	EndJob(id, why string)
}

func TestJobsAreLookedAfterOnlyWhereBothSidesSaySo(t *testing.T) {
	house := &keeping{owning: takesOwners(), told: make(chan *messages.OwnedJob, 8)}
	var announced []*messages.OwnedJob
	house.connect = func(_ context.Context, m *messages.ConnectOwner) error {
		announced = append(announced, m.GetJobs()...)
		return nil
	}
	for what, c := range map[string]struct {
		features string
		keeps    bool
		jobs     bool
	}{
		"both":                    {`"jobs"`, true, true},
		"an older client":         {`"error_code"`, true, false},
		"a house that keeps none": {`"jobs"`, false, false},
	} {
		var b gateway.Backend = house
		if !c.keeps {
			b = house.owning
		}
		ws := socketTo(t, serve(t, b, gateway.Options{}))
		say(t, ws, `{"type":"hello","version":1,"features":[`+c.features+`]}`)
		if hello := hear(t, ws, `"type":"hello"`); strings.Contains(hello, `"jobs"`) != c.jobs {
			t.Errorf("%s: %s", what, hello)
		}
		say(t, ws, strings.TrimSuffix(ownsX, "}")+`,"jobs":[{"job_id":"job_1","worker":"w","state":"running"}]}`)
		hear(t, ws, `"epoch":7`)
		o := (<-house.owners).(jobOwner)
		if o.TakesJobs() != c.jobs {
			t.Errorf("%s: it takes jobs: %v", what, o.TakesJobs())
		}
		say(t, ws, `{"type":"job","job_id":"job_1","session":"s","workspace":"lap:/x","state":"exited"}`)
		if !c.jobs {
			hear(t, ws, `"code":"invalid_message"`, `"about":"job"`, `"call_id":"job_1"`)
			continue
		}
		if m := <-house.told; m.GetEpoch() != 7 || m.GetState() != "exited" || m.GetUri() != "lap:/x" {
			t.Errorf("%s: told %v", what, m)
		}
	}
	if len(announced) != 1 || announced[0].GetJobId() != "job_1" || announced[0].GetWorkerId() != "w" {
		t.Errorf("announced were %v", announced)
	}
}

func TestAJobIsToldOfByTheOwnerOfItsPlaceAlone(t *testing.T) {
	house := &keeping{owning: takesOwners(), told: make(chan *messages.OwnedJob, 8), refuses: messages.Fail(messages.CodeConflict, "no", "")}
	ws := socketTo(t, serve(t, house, gateway.Options{}))
	say(t, ws, `{"type":"hello","version":1,"features":["jobs"]}`, ownsX)
	hear(t, ws, `"type":"hello"`)
	hear(t, ws, `"epoch":7`)
	o := (<-house.owners).(jobOwner)
	for _, of := range []string{`"session":"other","workspace":"lap:/x"`, `"session":"s","workspace":"lap:/other"`, `"session":"s"`} {
		say(t, ws, `{"type":"job","job_id":"job_1",`+of+`,"state":"exited"}`)
		hear(t, ws, `"code":"permission_denied"`, `"about":"job"`)
	}
	say(t, ws, `{"type":"job","job_id":"job_1","session":"s","workspace":"lap:/x","state":"exited","output":"o","dropped":3,"exit_code":2}`)
	hear(t, ws, `"code":"conflict"`, `"about":"job"`, `"call_id":"job_1"`)
	if m := <-house.told; m.GetOutput() != "o" || m.GetDropped() != 3 || m.GetExitCode() != 2 || len(house.told) != 0 {
		t.Errorf("told %v", m)
	}
	o.EndJob("job_1", "because")
	hear(t, ws, `"type":"request_resolved"`, `"call_id":"job_1"`, `"state":"cancelled"`, `"reason":"because"`)
	say(t, ws, `{"type":"job","job_id":7}`, `{"type":"job","job_id":"job_1","session":"s","workspace":"lap:/x","state":"exited"}`, `{"type":"attach","session":"s","workspace":"lap:/x","leave":true}`)
	hear(t, ws, `"code":"invalid_message"`)
	hear(t, ws, `"code":"conflict"`) // heard before the owner has left
	hear(t, ws, `"leave":true`)
	if !<-house.left {
		t.Error("it has not left for good")
	}
}

// TestAnOwnerThatLeavesAndHangsUpHasLeftForGood, also while what it said before is not heard yet.
func TestAnOwnerThatLeavesAndHangsUpHasLeftForGood(t *testing.T) {
	house := &keeping{owning: takesOwners(), told: make(chan *messages.OwnedJob)}
	ws := socketTo(t, serve(t, house, gateway.Options{}))
	say(t, ws, `{"type":"hello","version":1,"features":["jobs"]}`, ownsX)
	hear(t, ws, `"type":"hello"`)
	hear(t, ws, `"epoch":7`)
	say(t, ws, `{"type":"job","job_id":"job_1","session":"s","workspace":"lap:/x","state":"exited"}`, `{"type":"attach","session":"s","workspace":"lap:/x","leave":true}`)
	_ = ws.Close(websocket.StatusNormalClosure, "") // it may be gone already
	if !<-house.left {
		t.Error("it may come back")
	}
	<-house.told
}
