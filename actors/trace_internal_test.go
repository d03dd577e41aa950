package actors

import (
	"testing"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

func TestTracesThatNobodyCollectsCostNoAllocation(t *testing.T) {
	w := newWorker(&Services{})
	in := &appending{}
	f, g, m, x, call := &messages.InputAccepted{}, &generation{}, &generated{completion: &model.Completion{}}, &messages.Execute{}, &conversation.Call{}
	cost := testing.AllocsPerRun(100, func() {
		w.traceAccept(f)
		w.traced(in, false)
		w.traceCall(g)
		w.traceGenerated(g, m)
		w.traceExecute(call, x)
		w.traceReply(&messages.ToolReply{})
		w.resumeTrace()
		w.cutTrace()
	})
	if cost != 0 {
		t.Errorf("%v allocations", cost)
	}
}
