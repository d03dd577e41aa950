package modeltest_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/model/modeltest"
	"github.com/troupe-dev/troupe/model/openai"
	"github.com/troupe-dev/troupe/model/replay"
	"github.com/troupe-dev/troupe/model/script"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAScriptInProcessKeepsThePromisesOfAModel(t *testing.T) {
	modeltest.Run(t, func(_ *testing.T, s *script.Script) model.Model { return s.Model() })
}

func TestARecorderKeepsThePromisesOfTheModelThatItRecords(t *testing.T) {
	modeltest.Run(t, func(t *testing.T, s *script.Script) model.Model {
		r, err := replay.Open(filepath.Join(t.TempDir(), "claims.rec"), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
		return r.Model(s.Model(), 0)
	})
}

func TestOpenAIOverTheScriptedEndpointKeepsThePromisesOfAModel(t *testing.T) {
	for name, opts := range map[string]script.ServeOptions{
		"as it is":         {},
		"byte by byte":     {ChunkSize: 1, ChunkDelay: time.Nanosecond},
		"with a key":       {APIKey: "sk-conformance"},
		"an outage first":  {FailFirst: 1, FailStatus: 503},
		"after some delay": {Latency: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			modeltest.Run(t, func(t *testing.T, s *script.Script) model.Model { return overHTTP(t, s, opts, "chat") })
			modeltest.Run(t, func(t *testing.T, s *script.Script) model.Model { return overHTTP(t, s, opts, "responses") })
		})
	}
}

func overHTTP(t *testing.T, s *script.Script, opts script.ServeOptions, api string) model.Model {
	return client(t, script.Handler(s, opts), opts.APIKey, api)
}

// A recording that was made in process is played over HTTP, too, in the form of either API: what the client changes to be understood does not count.
func TestARecordingIsTheSameBehindEitherAPI(t *testing.T) {
	s, err := script.Parse("odd.yaml", []byte(`
rules:
  - steps:
      - {text: I look., reasoning: first, tool_calls: [{name: exec, arguments: {command: ls}}, {name: 'odd name', arguments: '{broken'}]}
      - {text: done}
`))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "odd.rec")
	r, err := replay.Open(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	was := talk(t, r.Model(s.Model(), 0))
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	rec, err := replay.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, api := range []string{"chat", "responses"} {
		if got := talk(t, client(t, replay.Handler(rec, script.ServeOptions{}), "", api)); got != was {
			t.Errorf("%s: got %s, was %s", api, got, was)
		}
	}
}

// talk is a conversation of two requests; it gives what was answered.
func talk(t *testing.T, m model.Model) string {
	t.Helper()
	prompt := &messages.Prompt{System: "You are tested.", Messages: []*messages.Message{{Role: messages.User, Text: "go"}}}
	tools := []model.ToolDef{{Name: "exec", Description: "Runs.", Schema: []byte(`{"type": "object", "properties": {"command": {"type": "string"}}}`)}}
	var said string
	for range 2 {
		c, err := model.Collect(m.Stream(t.Context(), &model.Request{Model: "m", Agent: "a", Prompt: prompt, Tools: tools}), nil)
		if err != nil {
			t.Fatal(err)
		}
		said += fmt.Sprint(c.Reasoning, c.Text, c.ToolCalls, c.Usage.GetOutputTokens(), c.Reason, ";")
		next := append(slices.Clone(prompt.Messages), &messages.Message{Role: messages.Assistant, Text: c.Text, ToolCalls: c.ToolCalls})
		for _, call := range slices.Backward(c.ToolCalls) {
			next = append(next, &messages.Message{Role: messages.ToolRole, ToolCallID: call.GetId(), ToolName: call.GetName()})
		}
		prompt = &messages.Prompt{System: prompt.System, Messages: next}
	}
	return said
}

func client(t *testing.T, h http.Handler, key, api string) model.Model {
	srv := httptest.NewServer(h)
	m, err := openai.New(openai.Options{
		BaseURL: srv.URL + "/v1", API: api, APIKey: openai.Key(key), MaxAttempts: 2,
		Sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		srv.Close()
	})
	return m
}
