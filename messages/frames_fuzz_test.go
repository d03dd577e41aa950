package messages_test

import (
	"errors"
	"testing"

	"github.com/troupe-dev/troupe/messages"
)

// Whatever comes is a frame, which can be written and read again as the same type, or a refusal that says why.
func FuzzDecodeFrame(f *testing.F) {
	for _, seed := range []string{
		`{"type":"hello","version":1,"features":["events"]}`, `{"type":"attach","session":"s","after":1}`, `{"type":"tool_call","call_id":"c","arguments":{}}`,
		`{"type":"tool_result","call_id":"c","result":null}`, `{"type":"tool_result","call_id":"c","error":"x"}`, `{"type":"approval_request","approval":{}}`,
		`{"type":"approval_response","approval_id":"a","decision":"approved"}`, `{"type":"request_resolved"}`, `{"type":"event","event":{"type":"x","at":""}}`,
		`{"type":"error"}`, `{"type":"ping"}`, `{"type":"progress","done":1e9}`, `{"TYPE":"ping"}`,
		`{"type":"job","job_id":"job_1","session":"s","worker":"w","workspace":"lap:/x","command":"c","state":"exited","note":"n","exit_code":3,"signal":"x","duration_ms":1,"started_ms":2,"output":"o","dropped":4}`,
		`{"type":"job","state":"running","exit_code":4294967296}`, `{"type":"attach","session":"s","workspace":"lap:/x","jobs":[{"job_id":"job_1","state":"running"},null]}`,
		`{"type":"request_resolved","call_id":"job_1","state":"cancelled","reason":"because"}`, `{"type":"ping","type":"hello"}`, `[`, "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		frame, err := messages.DecodeFrame(b)
		if err != nil {
			var refused *messages.Failure
			if frame != nil || !errors.As(err, &refused) || refused.GetCode() != messages.CodeInvalidMessage {
				t.Fatalf("%q: %v %v", b, frame, err)
			}
			return
		}
		out, err := messages.EncodeFrame(frame)
		if err != nil {
			return // JSON numbers and times that only decode
		}
		again, err := messages.DecodeFrame(out)
		if err != nil || again.FrameType() != frame.FrameType() {
			t.Fatalf("%q became %q: %v", b, out, err)
		}
	})
}
