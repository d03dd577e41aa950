package gateway

import (
	"fmt"

	"github.com/troupe-dev/troupe/messages"
)

// approve takes a person's answer.
func (c *conn) approve(f *messages.ApprovalResponseFrame) {
	about := func() *messages.ErrorFrame {
		return &messages.ErrorFrame{About: f.FrameType(), ApprovalID: f.ApprovalID}
	}
	if c.busy() {
		c.refuse(about(), messages.Fail(messages.CodeBusy, fmt.Sprintf("%d requests of the connection are under way", maxOwnCalls), "wait for one"))
		return
	}
	c.spawn(func() {
		defer c.done()
		if err := c.answer(f); err != nil {
			c.refuse(about(), err)
		}
	})
}

// answer passes an answer on, if it is about a session that the connection takes part in.
func (c *conn) answer(f *messages.ApprovalResponseFrame) error {
	if err := c.needs(ScopeApprove); err != nil {
		return err
	}
	m, err := f.AnswerJSON.Proto(f.ApprovalID)
	if err != nil {
		return err
	}
	c.mu.Lock()
	var sessions []string
	for s := range c.sessions {
		sessions = append(sessions, s)
	}
	c.mu.Unlock()
	all, err := ask[*messages.Approvals](c.asking(), c.a, &messages.ListApprovals{})
	if err != nil {
		return err
	}
	for _, v := range all.GetApprovals() {
		if v.GetApprovalId() == f.ApprovalID && !in(sessions, v.GetSessionId()) {
			return messages.Fail(messages.CodeDenied, "approval "+visible(f.ApprovalID)+" is of a session that the connection does not take part in", "attach to it first")
		}
	}
	if m.GetBy() == "" || !c.who.Owner {
		m.By = c.called()
	}
	_, err = c.a.askAny(c.asking(), m)
	return err
}

func in(all []string, s string) bool {
	for _, x := range all {
		if x == s {
			return true
		}
	}
	return false
}

// call runs a tool in a session for the client. Of one that shows no approvals a call that nobody else approves is over after a while.
func (c *conn) call(f *messages.ToolCallFrame) {
	c.mu.Lock()
	session := f.Session
	if session == "" && len(c.sessions) == 1 {
		for s := range c.sessions {
			session = s
		}
	}
	c.mu.Unlock()
	m, err := (&messages.CallToolJSON{Worker: f.Worker, CallID: f.CallID, Arguments: f.Arguments, RequiresApproval: f.Asks()}).Proto(f.ToolName)
	switch {
	case err == nil && f.CallID == "":
		err = messages.Fail(messages.CodeInvalidMessage, "tool_call has no call_id", "")
	case err == nil && f.ToolName == "":
		err = messages.Fail(messages.CodeInvalidMessage, "tool_call names no tool", "")
	case err == nil && f.Workspace != "":
		err = messages.Fail(messages.CodeInvalidMessage, "workspace of a tool_call says where a call of the server's is to run, and this one is a client's", "name the workspace as workspace_id in arguments")
	case err == nil && f.Preview: // it would run
		err = messages.Fail(messages.CodeInvalidMessage, "a tool_call of a client is no preview", "preview is what the server asks of an owner")
	case err == nil && session == "":
		err = messages.Fail(messages.CodeInvalidMessage, "tool_call names no session, and the connection takes part in none or in several", "attach first")
	case err == nil && c.busy():
		err = messages.Fail(messages.CodeBusy, fmt.Sprintf("%d requests of the connection are under way", maxOwnCalls), "wait for one")
	}
	if err != nil {
		c.refuse(&messages.ErrorFrame{About: f.FrameType(), CallID: f.CallID}, err)
		return
	}
	if !c.has(messages.FeatureApprovals) {
		m.ApprovalMs = max(c.a.opts.ClientApproval.Milliseconds(), 0)
	}
	c.spawn(func() {
		defer c.done()
		if err := c.needs(ScopePrompt); err != nil {
			c.refuse(&messages.ErrorFrame{About: f.FrameType(), CallID: f.CallID}, err)
			return
		}
		r, err := ask[*messages.ToolReply](c.asking(), c.a, &messages.ToSession{SessionId: session, Command: &messages.ToSession_CallTool{CallTool: m}})
		if err != nil {
			c.refuse(&messages.ErrorFrame{About: f.FrameType(), CallID: f.CallID, Session: session}, err)
			return
		}
		c.send(c.resultOf(f.CallID, r))
	})
}

// resultOf is what a call came to, in the form that the client reads.
func (c *conn) resultOf(id string, r *messages.ToolReply) *messages.ToolResultFrame {
	f := messages.ResultOf(id, r)
	if !c.has(messages.FeatureErrorCode) {
		f.ErrorCode, f.Message, f.Details = "", "", nil
	}
	return f
}
