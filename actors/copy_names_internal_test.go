package actors

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/troupe-dev/troupe/messages"
)

// TestEveryIdInAFactIsEitherOursOrAnothersName: a new field that names something must be decided about here, or copies
// would refer to their originals.
func TestEveryIdInAFactIsEitherOursOrAnothersName(t *testing.T) {
	others := map[protoreflect.Name]string{
		"call_id": "the provider's", "tool_call_id": "the provider's", "id": "the provider's", "provider_request_id": "the provider's",
		"input_id": "the client's", "timer_id": "the client's", "project_id": "shared by sessions", "job_id": "of a command that runs for the session that was copied, and for no copy",
		"message_id": "unique in its stream", "change_id": "the client's",
		"run_id": "no part of a copy, which has its conversations alone",
	}
	seen := map[protoreflect.FullName]bool{}
	var walk func(d protoreflect.MessageDescriptor)
	walk = func(d protoreflect.MessageDescriptor) {
		if seen[d.FullName()] {
			return
		}
		seen[d.FullName()] = true
		for i := range d.Fields().Len() {
			f := d.Fields().Get(i)
			if f.Message() != nil {
				walk(f.Message())
			}
			id, _ := renamed(f.Name())
			named := f.Name() == "id" || strings.HasSuffix(string(f.Name()), "_id")
			if f.Kind() == protoreflect.StringKind && named && !id && others[f.Name()] == "" {
				t.Errorf("%s: does a copy rename it?", f.FullName())
			}
			if id && others[f.Name()] != "" || id && f.IsList() {
				t.Errorf("%s is renamed", f.FullName())
			}
		}
	}
	walk((&messages.WorkerFact{}).ProtoReflect().Descriptor())
	walk((&messages.SessionFact{}).ProtoReflect().Descriptor())
	walk((&messages.ConversationFact{}).ProtoReflect().Descriptor())
}

func TestACopyNamesWhatIsItsOwnAndLeavesTheRest(t *testing.T) {
	n := newNaming(&Survey{Session: "ses_old", order: []string{"wrk_old"}}, "ses_new")
	planned := &messages.ToolPlanned{ExecId: "exe_1", CallId: "exe_1", Workspace: "troupe:/sessions/ses_old", Tool: "wrk_old"}
	finished := &messages.ToolFinished{ExecId: "exe_1", Content: "wrk_old"}
	created := &messages.WorkerCreated{WorkerId: "wrk_old", SessionId: "ses_old", Origin: &messages.Lineage{Conversation: "wrk_elsewhere"}, Parent: "wrk_old"}
	for _, f := range []proto.Message{planned, finished, created} {
		n.fact(f)
	}
	worker := n.id("wrk_old")
	if worker == "wrk_old" || created.GetWorkerId() != worker || created.GetParent() != worker || created.GetSessionId() != "ses_new" ||
		created.GetOrigin().GetConversation() != "wrk_elsewhere" {
		t.Errorf("%v", created)
	}
	if planned.GetExecId() == "exe_1" || planned.GetExecId() != finished.GetExecId() || planned.GetWorkspace() != "troupe:/sessions/ses_new" ||
		planned.GetCallId() != "exe_1" || planned.GetTool() != "wrk_old" || finished.GetContent() != "wrk_old" {
		t.Errorf("%v, %v", planned, finished)
	}
	var none *naming
	same := &messages.ToolPlanned{ExecId: "exe_1"}
	none.fact(same)
	if same.GetExecId() != "exe_1" || none.id("ses_old") != "ses_old" {
		t.Error("without names something changed")
	}
}
