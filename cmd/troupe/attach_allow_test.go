package main

import (
	"testing"

	"github.com/troupe-dev/troupe/messages"
)

// TestAnApprovalLetsOneCallRun: a server cannot use an answer for another call, another folder, or again.
func TestAnApprovalLetsOneCallRun(t *testing.T) {
	call := func(exec, args string) *messages.Execute {
		return &messages.Execute{ApprovalId: "apr_1", Tool: "exec", Arguments: args, ExecId: exec}
	}
	p := &person{approved: map[string]*approvedHere{"apr_1": {call: `exec {"command":"ls"}`}}}
	if p.was(call("exe_1", `{"command":"rm -rf ."}`)) || p.was(call("", `{"command":"ls"}`)) {
		t.Error("another call was approved")
	}
	for _, attempt := range []string{"first", "second"} {
		if !p.was(call("exe_1", `{"command":"ls"}`)) {
			t.Errorf("the %s attempt of the call was not approved", attempt)
		}
	}
	if p.was(call("exe_2", `{"command":"ls"}`)) {
		t.Error("the answer was used again")
	}
}
