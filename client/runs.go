package client

import (
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// runs are the requests about pipeline runs. A run is started as a session is made.
func runs(m proto.Message) *call {
	const path = "/api/pipelines/runs"
	read := as[messages.RunJSON]
	switch x := m.(type) {
	case *messages.ListRuns:
		var q []string
		if x.GetRunId() != "" {
			q = []string{"run", x.GetRunId()}
		}
		return get(path, listed[messages.RunJSON](func(v []*messages.RunView) proto.Message { return &messages.Runs{Runs: v} }), q...)
	case *messages.ShowRun:
		return get(path+"/"+segment(x.GetRunId()), read)
	case *messages.AwaitRun:
		q := []string{"wait", "end"}
		if x.GetChanges() {
			q = []string{"wait", "change", "after", strconv.FormatUint(x.GetAfter(), 10)}
			if x.Waits != nil {
				q = append(q, "waits", strconv.FormatUint(uint64(x.GetWaits()), 10))
			}
		}
		if x.GetBrief() {
			q = append(q, "items", "asking")
		}
		return get(path+"/"+segment(x.GetRunId()), read, q...)
	case *messages.ResumeRun:
		return post(path+"/"+segment(x.GetRunId())+"/resume", messages.RunWordFrom(x), read)
	case *messages.CancelRun:
		return post(path+"/"+segment(x.GetRunId())+"/cancel", messages.RunWordJSON{By: x.GetBy(), Reason: x.GetReason()}, read)
	}
	return nil
}
