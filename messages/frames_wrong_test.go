package messages_test

import (
	"errors"
	"testing"

	"github.com/troupe-dev/troupe/messages"
)

// What is wrong is said by the names that stand in the frame, and not by those of the types that read it.
func TestAFieldOfAFrameThatIsWrongIsNamedAsTheSenderKnowsIt(t *testing.T) {
	for frame, want := range map[string]string{
		`{"type":"job","job_id":{}}`:                         `frame job: field "job_id" cannot be an object`,
		`{"type":"approval_response","decision":7}`:          `frame approval_response: field "decision" cannot be a number`,
		`{"type":"attach","jobs":[{"state":7}]}`:             `frame attach: field "jobs.state" cannot be a number`,
		`{"type":"tool_call","requires_approval":"yes"}`:     `frame tool_call: field "requires_approval" cannot be a string`,
		`{"type":"approval_request","approval":{"rules":1}}`: `frame approval_request: field "approval.rules" cannot be a number`,
	} {
		_, err := messages.DecodeFrame([]byte(frame))
		var f *messages.Failure
		if !errors.As(err, &f) || f.GetMessage() != want || f.GetCode() != messages.CodeInvalidMessage {
			t.Errorf("%s: %v, want %q", frame, err, want)
		}
	}
}
