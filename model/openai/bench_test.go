package openai_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/model/openai"
)

// BenchmarkCall is one streamed call over loopback with histories of several lengths: the cost
// must grow with the bytes of the request alone. The server's cost is in it.
func BenchmarkCall(b *testing.B) {
	var body strings.Builder
	for i := range 60 {
		fmt.Fprintf(&body, `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"gpt","system_fingerprint":"fp","choices":[{"index":0,"delta":{"content":"word%d "},"logprobs":null,"finish_reason":null}]}`+"\n\n", i)
	}
	body.WriteString(stop + done)
	for _, turns := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("turns=%d", turns), func(b *testing.B) {
			m := provider(b, openai.Options{}, says(body.String(), 0))
			var msgs []*messages.Message
			for range turns {
				msgs = append(msgs, &messages.Message{Role: messages.User, Text: strings.Repeat("ask ", 50)},
					&messages.Message{Role: messages.Assistant, Text: strings.Repeat("answer ", 100)})
			}
			req := &model.Request{Model: "m", Prompt: &messages.Prompt{System: "s", Messages: msgs}}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := model.Collect(m.Stream(b.Context(), req), nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
