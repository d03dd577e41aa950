package actors

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"strings"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

//go:embed send.md
var sendDoc string

// SendName is what models call the tool.
const SendName = "send"

// Send is the tool by which an agent writes to another worker of its session (ADR 74). The call itself only finds out whether that can
// be written to; what it does is the Worker's OutboxEnqueued, which is written with its result.
type Send struct{ spec *tools.Spec }

// NewSend makes the tool.
func NewSend() *Send {
	return &Send{&tools.Spec{
		Name: SendName, Description: sendDoc, Effect: messages.Effect_IDEMPOTENT, NoWorkspace: true, NoTemp: true,
		Schema: json.RawMessage(`{
"type":"object","additionalProperties":false,"required":["to","text"],"properties":{
"to":{"type":"string","minLength":1,"maxLength":64,"description":"The worker, by its id (wrk_...), or parent: the one that delegated to you."},
"text":{"type":"string","minLength":1,"maxLength":16384,"description":"What it should know."}}}`),
	}}
}

type sendArgs struct {
	To   string `json:"to"`
	Text string `json:"text"`
}

// Spec implements tools.Tool.
func (s *Send) Spec() *tools.Spec { return s.spec }

// Run implements tools.Tool, for whoever calls it outside of a session: there is nobody then to write to.
func (s *Send) Run(_ *tools.Context, args json.RawMessage) (*tools.Result, error) {
	if err := s.check(args, &sendArgs{}); err != nil {
		return nil, err
	}
	return nil, tools.Errorf(tools.CodeInvalidArguments, "send works in a session alone")
}

func (s *Send) check(args json.RawMessage, a *sendArgs) error {
	if err := tools.Decode(s.spec, args, a); err != nil {
		return err
	}
	if strings.TrimSpace(a.Text) == "" {
		return tools.Errorf(tools.CodeInvalidArguments, "the message is empty: say what the other agent should know")
	}
	return nil
}

// send asks the Session whether the receiver can be written to.
func (r *run) send(ctx context.Context, s *Send) *messages.ToolReply {
	args := json.RawMessage(r.m.GetArguments())
	var a sendArgs
	if err := s.check(args, &a); err != nil {
		return r.failed(ctx, err)
	}
	if bad := r.approvedArguments(args); bad != nil {
		return bad
	}
	tc, end, reply := r.hooked(ctx, s)
	if reply != nil {
		return reply
	}
	defer end()
	asking, stop := r.uncancelled(ctx)
	defer stop()
	to, err := act.Ask[*messages.ActorView](asking, r.sys, r.session(), &messages.FindWorker{From: r.m.GetWorkerId(), WorkerId: a.To})
	var f *messages.Failure
	switch {
	case errors.As(err, &f):
		return failedReply(r.m, messages.ToolFinished_ERROR, tools.CodeInvalidArguments, r.said("Not sent: ", f))
	case err != nil:
		return failedReply(r.m, messages.ToolFinished_ERROR, tools.CodeInternalError, "Not sent: "+err.Error())
	}
	reply = failedReply(r.m, messages.ToolFinished_OK, "", "Sent to worker "+to.GetId()+" (agent "+to.GetAgent()+"). It is no answer yet.")
	reply.MetaJson = asJSON(map[string]any{"to": to.GetId()})
	r.after(ctx, tc, reply)
	return reply
}
