package openai_test

import (
	"bytes"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/model/openai"
)

// still answers each request with the same bytes, and allocates nothing while it does.
func still(t testing.TB, answer string) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() {
				defer c.Close()
				repeat(c, []byte(answer))
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		served.Wait()
	})
	return "http://" + l.Addr().String() + "/v1"
}

func repeat(c net.Conn, answer []byte) {
	buf, n := make([]byte, 64<<10), 0
	for {
		more, err := c.Read(buf[n:])
		if err != nil {
			return
		}
		n += more
		if !complete(buf[:n]) {
			continue
		}
		n = 0
		if _, err := c.Write(answer); err != nil {
			return
		}
	}
}

// complete says whether these bytes are a whole request.
func complete(b []byte) bool {
	head, body, ok := bytes.Cut(b, []byte("\r\n\r\n"))
	if !ok {
		return false
	}
	_, after, _ := bytes.Cut(head, []byte("Content-Length: "))
	length, _, _ := bytes.Cut(after, []byte("\r\n"))
	n, err := strconv.Atoi(string(length))
	return err == nil && len(body) >= n
}

// streamed is an answer as a server writes it, each event a chunk of its own.
func streamed(events ...string) string {
	out := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, e := range events {
		data := "data: " + e + "\n\n"
		out += strconv.FormatInt(int64(len(data)), 16) + "\r\n" + data + "\r\n"
	}
	return out + "0\r\n\r\n"
}

// costed is a call as an agent makes it, and its answer.
func costed(b testing.TB) (*openai.Model, *model.Request) {
	const envelope = `{"id":"chatcmpl-0000000001","object":"chat.completion.chunk","created":1760000000,"model":"mock-1","system_fingerprint":"fp_bench",`
	delta := func(d, finish string) string {
		return envelope + `"choices":[{"index":0,"delta":` + d + `,"logprobs":null,"finish_reason":` + finish + `}]}`
	}
	url := still(b, streamed(
		delta(`{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_0000000001","type":"function","function":{"name":"read_file","arguments":""}}]}`, "null"),
		delta(`{"tool_calls":[{"index":0,"function":{"arguments":"{\"path\""}}]}`, "null"),
		delta(`{"tool_calls":[{"index":0,"function":{"arguments":":\"note.txt\"}"}}]}`, "null"),
		delta(`{}`, `"tool_calls"`), envelope+`"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":50,"total_tokens":150}}`, "[DONE]",
	))
	m, err := openai.New(openai.Options{BaseURL: url, APIKey: openai.Key("sk-bench")})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = m.Close() })
	return m, &model.Request{
		Model: "mock-1", Agent: "default", Session: "s",
		Prompt: &messages.Prompt{System: "You answer questions about files.", Messages: []*messages.Message{{Role: messages.User, Text: "What does the note say?"}}},
		Tools:  []model.ToolDef{{Name: "read_file", Description: "reads a file", Schema: []byte(`{"type":"object"}`)}},
	}
}

// BenchmarkCost is one call of a server that allocates nothing.
func BenchmarkCost(b *testing.B) {
	m, req := costed(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := model.Collect(m.Stream(b.Context(), req), nil); err != nil {
			b.Fatal(err)
		}
	}
}

// TestACallMakesFewAllocations: what a call makes is garbage of every turn of every agent. There were 47; the race detector makes pools forget.
func TestACallMakesFewAllocations(t *testing.T) {
	m, req := costed(t)
	const most = 70
	n := testing.AllocsPerRun(200, func() {
		if _, err := model.Collect(m.Stream(t.Context(), req), nil); err != nil {
			t.Error(err)
		}
	})
	t.Logf("%.0f allocations", n)
	if n > most {
		t.Errorf("%.0f allocations in a call, more than %d", n, most)
	}
}
