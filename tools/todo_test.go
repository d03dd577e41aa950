package tools_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

func TestTheListIsShownAsItWasGiven(t *testing.T) {
	tool := tools.Todo()
	if tool.Spec().Effect != messages.Effect_IDEMPOTENT {
		t.Error("todo may be sent again")
	}
	args := json.RawMessage(`{"items":[{"id":"a","content":"find it","status":"completed"},{"content":"mend\nit","status":"in_progress"},{"content":"test it","status":"pending"}]}`)
	want := "1 of 3 done, 1 in progress\n[x] a. find it\n[>] 2. mend?it\n[ ] 3. test it"
	for range 2 { // again: the same
		res, err := tool.Run(&tools.Context{}, args)
		if err != nil || res.Content != want || res.Meta["pending"] != 1 {
			t.Fatalf("%v %v", res, err)
		}
	}
	res, err := tool.Run(&tools.Context{}, json.RawMessage(`{"items":[]}`))
	if err != nil || res.Content != "The list is empty." {
		t.Errorf("%v %v", res, err)
	}
}

func TestAListThatContradictsItselfIsRefused(t *testing.T) {
	for args, code := range map[string]string{
		`{"items":[{"id":"a","content":"x","status":"pending"},{"id":"a","content":"y","status":"pending"}]}`:              tools.CodeValidationFailed,
		`{"items":[{"id":"2","content":"x","status":"pending"},{"content":"y","status":"pending"}]}`:                       tools.CodeValidationFailed,
		`{"items":[{"content":" ","status":"pending"}]}`:                                                                   tools.CodeValidationFailed,
		`{"items":[{"content":"x","status":"done"}]}`:                                                                      tools.CodeInvalidArguments,
		`{"items":[{"content":"x"}]}`:                                                                                      tools.CodeInvalidArguments,
		`{"items":"x"}`:                                                                                                    tools.CodeInvalidArguments,
		`{"items":[` + strings.Repeat(`{"content":"x","status":"pending"},`, 100) + `{"content":"x","status":"pending"}]}`: tools.CodeInvalidArguments,
	} {
		_, err := tools.Todo().Run(&tools.Context{}, json.RawMessage(args))
		var e *tools.Error
		if !errors.As(err, &e) || e.Code != code {
			t.Errorf("%.80s: %v", args, err)
		}
	}
}
