package conversation_test

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
)

// fact makes the fact of a verb:
//
//	created agent=A model=M          after `copy` lines: with that history
//	input ID "text" | input ID TOOL(ARGS)    withdraw ID    begin TURN INPUT...
//	generate [model=M] [gen=ID]      answer ["text"] [TOOL#ID(ARGS)...] [finish=F] [in=N] [out=N] [gen=ID]
//	fail CLASS ["message"] [retry=MS]
//	plan N TOOL effect=E [unknown=P] [approval=yes]
//	ask N [id=A]    resolve N approved|rejected|... [id=A] [args=(JSON)]
//	doubt N    say N retry|done|fail
//	dispatch N...   finish N ok|error|... "text" [PATH=HASH...]
//	complete OUTCOME    cancel [by=WHO] ["reason"]
//	config [agent=A] [model=M]    activated    panicked    compacted    closed
func (sc *script) fact(words []string) (proto.Message, error) {
	verb, args := words[0], words[1:]
	opt, text := options(args), quotedIn(args)
	switch verb {
	case "created":
		copied := sc.copied
		sc.copied = nil
		return &messages.WorkerCreated{WorkerId: "wrk_1", SessionId: "ses_1", Agent: opt["agent"], Model: opt["model"], System: opt["system"], Copied: copied}, nil
	case "activated":
		return &messages.Activated{Epoch: sc.epoch, RecoveredSeq: sc.s.Seq(), Decisions: sc.s.Recover()}, nil
	case "input":
		return inputFact(args)
	case "withdraw":
		return &messages.InputWithdrawn{InputId: args[0]}, nil
	case "join":
		return &messages.InputJoined{TurnId: args[0], InputId: args[1]}, nil
	case "begin":
		return &messages.TurnStarted{TurnId: args[0], InputIds: args[1:]}, nil
	case "cancel":
		return &messages.CancelRequested{By: opt["by"], Reason: text}, nil
	case "complete":
		return &messages.TurnCompleted{TurnId: sc.turnID(), Outcome: messages.TurnCompleted_Outcome(number(messages.TurnCompleted_Outcome_value, args[0]))}, nil
	case "config":
		return &messages.ConfigChanged{Agent: opt["agent"], Model: opt["model"]}, nil
	case "panicked":
		return &messages.Panicked{Reason: "boom"}, nil
	case "compacted":
		return &messages.HistoryCompacted{UptoSeq: sc.s.Seq(), Summary: text}, nil
	case "closed":
		return &messages.Closed{}, nil
	case "generate", "answer", "fail":
		return sc.generationFact(verb, args, opt, text)
	}
	return sc.callFact(verb, args, opt, text)
}

func inputFact(args []string) (proto.Message, error) {
	f := &messages.InputAccepted{InputId: args[0], Mode: messages.InputAccepted_Mode(messages.InputAccepted_Mode_value[strings.ToUpper(options(args)["mode"])])}
	if calls := callsIn(args[1:]); len(calls) > 0 {
		f.Call = calls[0]
	} else {
		f.Parts = []*messages.Part{{Kind: &messages.Part_Text{Text: quotedIn(args)}}}
	}
	f.ContentHash = conversation.ContentHash(f.GetParts(), f.GetCall())
	return f, nil
}

func (sc *script) generationFact(verb string, args []string, opt map[string]string, text string) (proto.Message, error) {
	if verb == "generate" {
		sc.gens++
	}
	gen := opt["gen"]
	if gen == "" {
		gen = fmt.Sprintf("g%d", sc.gens)
	}
	switch verb {
	case "generate":
		f := &messages.GenerationStarted{GenId: gen, Model: sc.s.Model()}
		if r, ok := sc.s.Ready(); ok {
			h := r.Render("").Hash
			f.RequestHash = h[:]
		}
		return f, nil
	case "fail":
		retry, _ := strconv.ParseInt(opt["retry"], 10, 64)
		return &messages.GenerationFailed{GenId: gen, Class: args[0], RetryAtUnixMs: retry, Message: text}, nil
	}
	in, _ := strconv.ParseInt(opt["in"], 10, 64)
	out, _ := strconv.ParseInt(opt["out"], 10, 64)
	f := &messages.GenerationCompleted{
		GenId: gen, Content: text, ToolCalls: callsIn(args), FinishReason: opt["finish"], Model: sc.s.Model(),
		Usage: &messages.Usage{InputTokens: in, OutputTokens: out},
	}
	if f.GetFinishReason() == "" {
		f.FinishReason = "stop"
		if len(f.GetToolCalls()) > 0 {
			f.FinishReason = "tool_calls"
		}
	}
	return f, nil
}

func (sc *script) callFact(verb string, args []string, opt map[string]string, text string) (proto.Message, error) {
	if len(args) == 0 {
		return nil, fmt.Errorf("unknown verb %q, or no call named", verb)
	}
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return nil, err
	}
	exec := sc.execID(n)
	apr := opt["id"]
	if apr == "" {
		apr = "apr_" + exec
	}
	switch verb {
	case "plan":
		return &messages.ToolPlanned{
			ExecId: exec, Ordinal: uint32(n), Tool: args[1], CallId: sc.callID(n), Workspace: "home",
			Effect:        messages.Effect_Class(number(messages.Effect_Class_value, opt["effect"])),
			Unknown:       messages.UnknownOutcome_Policy(number(messages.UnknownOutcome_Policy_value, opt["unknown"])),
			NeedsApproval: opt["approval"] == "yes",
		}, nil
	case "ask":
		return &messages.ApprovalRequested{ApprovalId: apr, ExecId: exec, CallId: sc.callID(n)}, nil
	case "resolve":
		return &messages.ApprovalResolved{
			ApprovalId: apr, ExecId: exec, Decision: messages.Decision_Value(number(messages.Decision_Value_value, args[1])),
			ModifiedArgs: strings.Trim(opt["args"], "()"), By: "somebody",
		}, nil
	case "doubt":
		return &messages.CallDoubted{ExecId: exec}, nil
	case "say":
		return &messages.CallResolved{ExecId: exec, Resolution: messages.CallResolved_Resolution(number(messages.CallResolved_Resolution_value, args[1])), Note: text}, nil
	case "dispatch":
		return &messages.ToolDispatched{ExecId: exec, Attempt: 1}, nil
	case "finish":
		f := &messages.ToolFinished{ExecId: exec, CallId: sc.callID(n), Content: text}
		f.Status = messages.ToolFinished_Status(number(messages.ToolFinished_Status_value, args[1]))
		for k, v := range opt {
			f.PostconditionHashes = append(f.PostconditionHashes, &messages.FileHash{Path: k, Sha256: strings.TrimSuffix(v, "gone")})
		}
		return f, nil
	}
	return nil, fmt.Errorf("unknown verb %q", verb)
}

// copy gathers the history that the next `created` hands over.
func (sc *script) copy(args []string) error {
	if args[0] == "turn" {
		sc.copied = append(sc.copied, &messages.Turn{Outcome: args[1]})
		return nil
	}
	m := &messages.ChatMessage{Role: args[0], Content: quotedIn(args), ToolCalls: callsIn(args)}
	if args[0] == "tool" {
		m.ToolCallId, m.Name = args[1], args[2]
	}
	t := sc.copied[len(sc.copied)-1]
	t.Messages = append(t.Messages, m)
	return nil
}

func (sc *script) turnID() string {
	if t := sc.s.Turn(); t != nil {
		return t.ID
	}
	return "none"
}

// execID names a call by its turn, step and place.
func (sc *script) execID(n int) string {
	steps := 0
	if t := sc.s.Turn(); t != nil {
		steps = t.Steps
	}
	return fmt.Sprintf("%s.%d.%d", sc.turnID(), steps, n)
}

func (sc *script) callID(n int) string {
	if p, ok := sc.s.Next(conversation.Limits{}).(conversation.Plan); ok && n >= p.From && n < p.From+len(p.Calls) {
		return p.Calls[n-p.From].GetId()
	}
	if t := sc.s.Turn(); t != nil && n < len(t.Calls) {
		return t.Calls[n].Plan.GetCallId()
	}
	return ""
}

// number finds an enum's value by its name in any case; "" is 0.
func number(values map[string]int32, name string) int32 {
	n, ok := values[strings.ToUpper(name)]
	if !ok && name != "" {
		panic("no such word: " + name)
	}
	return n
}

func quotedIn(words []string) string {
	for _, w := range words {
		if strings.HasPrefix(w, `"`) {
			s, err := strconv.Unquote(w)
			if err != nil {
				panic(err)
			}
			return s
		}
	}
	return ""
}

// callsIn reads the words TOOL#ID(ARGS); the id defaults to c and the call's place.
func callsIn(words []string) []*messages.ToolCall {
	var out []*messages.ToolCall
	for _, w := range words {
		name, args, ok := strings.Cut(w, "(")
		if !ok || strings.ContainsAny(name, "\"=") {
			continue
		}
		name, id, ok := strings.Cut(name, "#")
		if !ok {
			id = fmt.Sprintf("c%d", len(out))
		}
		out = append(out, &messages.ToolCall{Id: id, Name: name, Arguments: strings.TrimSuffix(args, ")")})
	}
	return out
}
