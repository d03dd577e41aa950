package e2e

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/client"
	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
)

// echo answers one question with one reply, and keeps the question.
type echo struct {
	reply proto.Message
	asked proto.Message
}

func (e *echo) Ask(_ context.Context, m proto.Message) (proto.Message, error) {
	if _, hello := m.(*messages.Hello); hello && e.reply == nil {
		return &messages.Holder{Pid: 1}, nil
	}
	e.asked = m
	return e.reply, nil
}

func (e *echo) Events(context.Context, string, uint64) iter.Seq2[*messages.Event, error] {
	return func(yield func(*messages.Event, error) bool) { yield(nil, errors.New("none")) }
}

// pair is a question and the reply to it, with every field that a client can say or hear.
type pair struct{ ask, reply proto.Message }

func pairs() []pair {
	usage := &messages.Usage{InputTokens: 1, OutputTokens: 2, CachedTokens: 3, ReasoningTokens: 4, CostMicroUsd: 1234567}
	worker := &messages.WorkerView{Id: "wrk_1", SessionId: "ses_1", State: "working", Turns: 2, Usage: usage}
	session := &messages.SessionView{Id: "ses_1", State: "working", Workers: []*messages.WorkerView{worker}, Usage: usage}
	result := &messages.TurnResult{SessionId: "ses_1", TurnId: "t", Outcome: messages.TurnCompleted_STUCK, Reason: "why", Usage: usage}
	called := &messages.ToolReply{Tool: "exec", CallId: "c", Status: messages.ToolFinished_TIMEOUT, DetailsJson: `{"a":1}`, MetaJson: `{"b":2}`}
	in := func(cmd *messages.ToSession) *messages.ToSession {
		cmd.SessionId = "ses_1"
		return cmd
	}
	input := &messages.SubmitInput{WorkerId: "w", InputId: "i/ü ?#%", Mode: messages.InputAccepted_INTERRUPT, From: "me", Parts: say("a\r\n\x00b")}
	return []pair{
		{&messages.CreateSession{SessionId: "ses_1", Agent: "a", First: input, Rules: []string{"r"}, NoInput: true}, session},
		{&messages.DescribeTree{}, &messages.Tree{Root: &messages.ActorView{Id: "r", Kind: "supervisor", Children: []*messages.ActorView{{Id: "c"}}}}},
		{&messages.ListSessions{Folder: "local:/a b&c=d", Limit: 3}, &messages.Sessions{Sessions: []*messages.SessionView{session, session}}},
		{&messages.ListWorkers{SessionId: "ses_1"}, &messages.Workers{Workers: []*messages.WorkerView{worker}}},
		{&messages.ListCalls{SessionId: "ses_1", State: "failed"}, &messages.Calls{Calls: []*messages.CallView{{ExecId: "e", AtUnixMs: 5}, {CallId: "c"}}, Unread: []*messages.Unread{{SessionId: "ses_2", WorkerId: "wrk_2", Problem: "wrk/wrk_2: gone\r\nmüll, \"a\" & b"}}}},
		{&messages.ResolveCall{ExecId: "exe/ü ?", Resolution: messages.CallResolved_FAIL, By: "me", Note: "n\n"}, &messages.Ack{}},
		{&messages.ListApprovals{SessionId: "ses_1"}, &messages.Approvals{Approvals: []*messages.ApprovalView{{ApprovalId: "a", ArgsHash: []byte("h"), AtUnixMs: 5, Preview: "+x\n"}}}},
		{&messages.ResolveApproval{ApprovalId: "apr/ü ?", Decision: messages.Decision_REJECTED, Message: "no\n", By: "me", ArgsHash: []byte("h"), Arguments: "{}", Scope: "always", Rule: "@read"}, &messages.Ack{}},
		{&messages.ListDamage{}, &messages.Damage{Findings: []*messages.Finding{{Stream: "ses/ses_1", Seq: 3, Problem: "lost records"}}}},
		{&messages.ListRules{SessionId: "ses_1"}, &messages.Rules{Rules: []*messages.RuleView{{RuleId: "rul_1", Rule: "exec(a)", Scope: "agent", Agent: "a", AtUnixMs: 5}}}},
		{&messages.RevokeRule{RuleId: "rul/ü ?", By: "me"}, &messages.Ack{}},
		{&messages.Show{Id: "ses_1"}, &messages.Shown{Session: session, Turns: []*messages.TurnView{{TurnId: "t", Usage: usage}}}},
		{&messages.Verify{SessionIds: []string{"ses_1"}}, &messages.Verified{Streams: 1, Findings: []*messages.Finding{{Stream: "s", Seq: 2, Problem: "p"}}}},
		{&messages.ForkSession{SessionId: "ses_1", At: 7, Model: "m"}, &messages.Forked{Session: session, Origin: "ses_1", At: 7, ClosedCalls: 1, ClosedTurns: 2, Staged: 3, Damage: "d"}},
		{in(&messages.ToSession{Command: &messages.ToSession_SetTimer{SetTimer: &messages.SetTimer{WorkerId: "w", TimerId: "t", DueUnixMs: 1772355600123, Parts: say("a\r\n\x00b"), Misfire: messages.TimerSet_SKIP, By: "b"}}}), &messages.TimerView{TimerId: "t", DueUnixMs: 5, Text: "x", Misfire: "fire", WorkerId: "w", State: "set"}},
		{in(&messages.ToSession{Command: &messages.ToSession_ListTimers{ListTimers: &messages.ListTimers{WorkerId: "w"}}}), &messages.Timers{Timers: []*messages.TimerView{{TimerId: "t", DueUnixMs: 5}}}},
		{in(&messages.ToSession{Command: &messages.ToSession_CancelTimer{CancelTimer: &messages.CancelTimer{WorkerId: "w", TimerId: "a/..", By: "b"}}}), &messages.Ack{}},
		{&messages.ForkSession{SessionId: "ses_1"}, &messages.Forked{Session: session, Origin: "ses_1", At: 9}},
		{in(&messages.ToSession{Command: &messages.ToSession_Save{Save: &messages.SaveHistory{WorkerId: "w"}}}), &messages.Ack{}},
		{in(&messages.ToSession{Command: &messages.ToSession_Compact{Compact: &messages.CompactHistory{WorkerId: "w", By: "b"}}}), &messages.Compacted{WorkerId: "w", UptoSeq: 7, TokensBefore: 900, TokensAfter: 90, Fallback: true, Reason: "r"}},
		{&messages.Hello{}, &messages.Holder{Pid: 7, Version: "v", Data: "/d", StartedAtUnixMs: 9}},
		{in(&messages.ToSession{Command: &messages.ToSession_Submit{Submit: input}}), &messages.InputReply{InputId: "i", Seq: 1, SessionId: "s", WorkerId: "w", Duplicate: true}},
		{in(&messages.ToSession{Command: &messages.ToSession_AwaitTurn{AwaitTurn: &messages.AwaitTurn{WorkerId: "w", InputId: "i"}}}), result},
		{in(&messages.ToSession{Command: &messages.ToSession_AwaitTurn{AwaitTurn: &messages.AwaitTurn{}}}), called},
		{in(&messages.ToSession{Command: &messages.ToSession_Cancel{Cancel: &messages.CancelSession{WorkerId: "w", By: "b", Reason: "r"}}}), &messages.Cancelled{Turns: 2}},
		{in(&messages.ToSession{Command: &messages.ToSession_ListInputs{ListInputs: &messages.ListInputs{WorkerId: "w"}}}), &messages.Inputs{Inputs: []*messages.InputView{{InputId: "i"}}}},
		{in(&messages.ToSession{Command: &messages.ToSession_WithdrawInput{WithdrawInput: &messages.WithdrawInput{WorkerId: "w", InputId: "..", By: "b"}}}), &messages.Ack{}},
		{in(&messages.ToSession{Command: &messages.ToSession_CallTool{CallTool: &messages.CallTool{WorkerId: "w", Tool: "a/b", Arguments: "{ }", CallId: "c"}}}), called},
		{in(&messages.ToSession{Command: &messages.ToSession_SpawnWorker{SpawnWorker: &messages.SpawnWorker{Agent: "a", Origin: &messages.Lineage{Conversation: "c", Seq: 3}}}}), worker},
		{in(&messages.ToSession{Command: &messages.ToSession_DeleteWorker{DeleteWorker: &messages.DeleteWorker{WorkerId: "w"}}}), &messages.Ack{}},
		{in(&messages.ToSession{Command: &messages.ToSession_Describe{Describe: &messages.DescribeSession{}}}), session},
		{in(&messages.ToSession{Command: &messages.ToSession_History{History: &messages.ReadHistory{}}}), &messages.History{WorkerId: "w", Seq: 4}},
		{in(&messages.ToSession{Command: &messages.ToSession_History{History: &messages.ReadHistory{WorkerId: "w"}}}), &messages.History{WorkerId: "w", Turns: []*messages.Turn{{Outcome: "done"}}}},
		{in(&messages.ToSession{Command: &messages.ToSession_Configure{Configure: &messages.ConfigureWorker{WorkerId: "w", Model: "m", Agent: "a", System: "s", Tools: []string{"t"}, Mcp: "off"}}}), worker},
		{in(&messages.ToSession{Command: &messages.ToSession_CountJobs{CountJobs: &messages.CountJobs{}}}), &messages.JobCount{Running: 1, Waiting: 2, Background: 1, BackgroundSinceUnixMs: 5, Jobs: []*messages.BackgroundJob{{JobId: "job_1", WorkerId: "w", Workspace: "local:/x", Command: "serve", SinceUnixMs: 5}}}},
		{in(&messages.ToSession{Command: &messages.ToSession_EndJob{EndJob: &messages.EndJob{JobId: "job/..", By: "b", Reason: "r & s"}}}), &messages.Ack{}},
		{in(&messages.ToSession{Command: &messages.ToSession_WaitIdle{WaitIdle: &messages.WaitIdle{WorkerId: "w"}}}), &messages.Ack{}},
		{in(&messages.ToSession{Command: &messages.ToSession_ReleaseWorker{ReleaseWorker: &messages.ReleaseWorker{WorkerId: "w", By: "me"}}}), worker},
		{in(&messages.ToSession{Command: &messages.ToSession_Close{Close: &messages.CloseSession{Reason: "r & s"}}}), &messages.Ack{}},
		{in(&messages.ToSession{Command: &messages.ToSession_Close{Close: &messages.CloseSession{Forget: true}}}), &messages.Ack{}},
	}
}

func TestEveryQuestionArrivesAsItWasAskedAndItsReplyComesBack(t *testing.T) {
	for _, p := range pairs() {
		name := fmt.Sprintf("%T", p.ask)
		if m, ok := p.ask.(*messages.ToSession); ok {
			name = fmt.Sprintf("%T", m.GetCommand())
		}
		t.Run(name, func(t *testing.T) {
			e := &echo{}
			c := dialBackend(t, e)
			e.reply = p.reply
			got, err := c.Ask(t.Context(), p.ask)
			if err != nil {
				t.Fatal(err)
			}
			arrives := p.ask
			if l, is := p.ask.(*messages.ListSessions); is { // one more than a page tells whether there is another one
				l = proto.CloneOf(l)
				l.Limit++
				arrives = l
			}
			if !proto.Equal(e.asked, arrives) {
				t.Errorf("arrived as\n%v\nwas asked as\n%v", e.asked, p.ask)
			}
			if !proto.Equal(got, p.reply) {
				t.Errorf("came back as\n%v\nwas answered as\n%v", got, p.reply)
			}
		})
	}
}

// dialBackend serves a backend on a socket and connects to it.
func dialBackend(t *testing.T, b gateway.Backend) *client.Client {
	t.Helper()
	data := t.TempDir()
	l, _, err := gateway.ListenSocket(data)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- gateway.Serve(ctx, l, gateway.New(b, gateway.Options{})) }()
	c, err := client.Dial(t.Context(), data)
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}
