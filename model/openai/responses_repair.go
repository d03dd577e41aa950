package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/troupe-dev/troupe/model"
)

// take takes one event of the Responses API, as event does for Chat Completions: framing,
// typed errors, and no success without a terminal event. Of the many kinds of event only those
// that mean something here go on; deltas are not merged.
func (b *repair) take(ev event, last bool) {
	data := bytes.TrimSpace(ev.data)
	if ev.raw {
		b.document(data)
		return
	}
	if len(data) == 0 || string(data) == "[DONE]" {
		return // the terminal event decides
	}
	b.events++
	var head struct {
		Type     string          `json:"type"`
		Response json.RawMessage `json:"response"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		switch f := readFault(data); {
		case f.said || ev.failure:
			b.err = b.of.fault(f)
		case last && errors.As(err, new(*json.SyntaxError)):
			b.fail(model.Truncated, "the stream ended in the middle of an event")
		default:
			b.fail(model.Protocol, fmt.Sprintf("an event of the stream is none of the Responses API: %q", cut(data, 120)))
		}
		return
	}
	switch head.Type {
	case "response.output_text.delta", "response.refusal.delta", "response.reasoning_summary_text.delta",
		"response.reasoning_text.delta", "response.output_item.added", "response.output_item.done",
		"response.function_call_arguments.delta":
		b.pass(data)
	case "response.completed", "response.incomplete":
		b.pass(data)
		b.finished, b.done = true, true
		b.close()
	case "response.failed":
		b.err = b.of.fault(readFault(head.Response))
	default:
		if f := readFault(data); f.said || ev.failure {
			b.err = b.of.fault(f)
		}
	}
}
