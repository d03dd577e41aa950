package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/troupe-dev/troupe/model"
)

// responsesRepair does for the Responses API what repair does for Chat Completions: framing,
// typed errors, and no success without a terminal event. Of the many kinds of event only those
// that mean something here go on; deltas are not merged.
type responsesRepair struct {
	repair
}

func (t *try) mendedResponses(src io.ReadCloser, lent *buffers) io.ReadCloser {
	r := &responsesRepair{repair{
		src: src, out: lent.out[:0], readError: t.broken, fault: t.fault, alive: t.alive, ending: t.ending,
		fr: framer{buf: lent.in, joined: lent.joined[:0]},
	}}
	r.handle = r.take
	return &answerBody{Reader: r, t: t, src: src, lent: lent, fr: &r.fr, out: &r.out, done: &r.done}
}

// take takes one event.
func (b *responsesRepair) take(ev event, last bool) {
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
			b.err = b.fault(f)
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
		b.err = b.fault(readFault(head.Response))
	default:
		if f := readFault(data); f.said || ev.failure {
			b.err = b.fault(f)
		}
	}
}
