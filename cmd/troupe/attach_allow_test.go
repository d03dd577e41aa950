package main

import (
	"errors"
	"slices"
	"testing"

	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/workspace"
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

// TestASharedFolderHasTheToolsThatAreConfiguredHere: the server is told so, and what it asks for all the same is refused.
func TestASharedFolderHasTheToolsThatAreConfiguredHere(t *testing.T) {
	dir := t.TempDir()
	addr, real, err := workspace.Local(dir)
	if err != nil {
		t.Fatal(err)
	}
	ws, err := workspace.Open(workspace.Options{Dir: real, Address: addr, Trust: messages.Trust_FULL})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ws.Close() }()
	write := &messages.Execute{Tool: "write_file", Arguments: `{"path":"a","content":"x"}`}
	list := &messages.Execute{Tool: "list_files", Arguments: `{}`}
	for _, x := range []struct {
		offers []string
		told   []string
		writes bool
	}{{nil, nil, true}, {[]string{"list_files"}, []string{"list_files"}, false}, {[]string{"write_file", "list_files"}, []string{"list_files", "write_file"}, true}} {
		s := &sharing{f: &attachFlags{}, loaded: &config.Loaded{Config: &config.Config{}}, trust: messages.Trust_FULL, offers: x.offers}
		if got := slices.Sorted(slices.Values(s.tools())); !slices.Equal(got, x.told) {
			t.Errorf("%v: the server is told %v", x.offers, got)
		}
		if err := s.allow(t.Context(), list, ws); err != nil {
			t.Errorf("%v: %v", x.offers, err)
		}
		err := s.allow(t.Context(), write, ws)
		if refused := new(tools.Error); (err == nil) != x.writes || err != nil && (!errors.As(err, &refused) || refused.Code != tools.CodeToolNotFound) {
			t.Errorf("%v: to write: %v", x.offers, err)
		}
		if err := s.shows(t.Context(), write, ws); err == nil && x.offers != nil {
			t.Errorf("%v: a file is shown", x.offers)
		}
	}
}
