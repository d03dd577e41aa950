// Command bare is the loop that people write themselves, under the load of the benchmarks: a
// goroutine for each conversation, go-openai, and a synced Badger transaction for every message. It
// has no supervision, no approval, no limits, no confinement, no events and no recovery of tool calls.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/dgraph-io/badger/v4"
	openai "github.com/sashabaranov/go-openai"

	"github.com/troupe-dev/troupe/test/bench/load"
)

func main() {
	o, err := load.Flags()
	if err == nil {
		err = measure(context.Background(), o)
	}
	load.Exit(err)
}

func measure(ctx context.Context, o *load.Options) (err error) {
	folders, err := os.MkdirTemp("", "troupe-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folders)
	l := &loop{tools: offered()}
	if l.dir, err = load.Folder(folders, "shared"); err != nil {
		return err
	}
	if o.Data != "" {
		l.db, err = badger.Open(badger.DefaultOptions(o.Data).WithSyncWrites(true).WithLoggingLevel(badger.ERROR))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, l.db.Close()) }()
	}
	c := openai.DefaultConfig("sk-bench")
	c.BaseURL = o.Base
	c.HTTPClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1 << 16, DisableCompression: true}}
	l.client = openai.NewClientWithConfig(c)
	return load.Run(ctx, "bare loop", o, func(_ context.Context, i int) (load.Turn, error) {
		s := &conversation{loop: l, id: i, history: []openai.ChatCompletionMessage{{Role: openai.ChatMessageRoleSystem, Content: load.System}}}
		return s.turn, nil
	})
}

// loop is what all conversations share.
type loop struct {
	client *openai.Client
	db     *badger.DB // nil: nothing is kept
	tools  []openai.Tool
	dir    string
}

type conversation struct {
	*loop
	id      int
	kept    int
	history []openai.ChatCompletionMessage
}

// turn is: prompt, model, tool, model, with a commit after each.
func (s *conversation) turn(ctx context.Context, n int) error {
	if err := s.add(openai.ChatCompletionMessage{Role: openai.ChatMessageRoleUser, Content: load.Prompt(n)}); err != nil {
		return err
	}
	for calls := 0; ; calls++ {
		answer, err := s.ask(ctx)
		if err != nil {
			return err
		}
		if err := s.add(answer); err != nil {
			return err
		}
		if len(answer.ToolCalls) == 0 {
			if calls != 1 || answer.Content == "" {
				return fmt.Errorf("turn %d: answer %q after %d calls", n, answer.Content, calls)
			}
			return nil
		}
		for _, call := range answer.ToolCalls {
			text, err := s.readFile(call.Function.Arguments)
			if err != nil {
				return err
			}
			if err := s.add(openai.ChatCompletionMessage{Role: openai.ChatMessageRoleTool, ToolCallID: call.ID, Content: text}); err != nil {
				return err
			}
		}
	}
}

// add keeps a message, durably.
func (s *conversation) add(m openai.ChatCompletionMessage) error {
	s.history = append(s.history, m)
	if s.db == nil {
		return nil
	}
	value, err := json.Marshal(m)
	if err != nil {
		return err
	}
	key := fmt.Appendf(nil, "conversation/%08d/%08d", s.id, s.kept)
	s.kept++
	return s.db.Update(func(txn *badger.Txn) error { return txn.Set(key, value) })
}

// ask streams one answer of the model and puts it together.
func (s *conversation) ask(ctx context.Context) (openai.ChatCompletionMessage, error) {
	m := openai.ChatCompletionMessage{Role: openai.ChatMessageRoleAssistant}
	stream, err := s.client.CreateChatCompletionStream(ctx, openai.ChatCompletionRequest{
		Model: load.Model, Messages: s.history, Tools: s.tools, Stream: true,
	})
	if err != nil {
		return m, err
	}
	defer stream.Close()
	var text, arguments strings.Builder
	for {
		event, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			m.Content = text.String()
			if len(m.ToolCalls) > 0 { // the model server makes one at a time
				m.ToolCalls[0].Function.Arguments = arguments.String()
			}
			return m, nil
		}
		if err != nil {
			return m, err
		}
		for _, choice := range event.Choices {
			text.WriteString(choice.Delta.Content)
			for _, part := range choice.Delta.ToolCalls {
				if part.ID != "" {
					m.ToolCalls = append(m.ToolCalls, openai.ToolCall{ID: part.ID, Type: part.Type, Function: openai.FunctionCall{Name: part.Function.Name}})
				}
				arguments.WriteString(part.Function.Arguments)
			}
		}
	}
}

func offered() []openai.Tool {
	return []openai.Tool{{Type: openai.ToolTypeFunction, Function: &openai.FunctionDefinition{
		Name: load.Tool, Description: "Read a file of the folder",
		Parameters: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}`),
	}}}
}

func (s *conversation) readFile(arguments string) (string, error) {
	var args struct{ Path string }
	if err := json.Unmarshal([]byte(arguments), &args); err != nil {
		return "", err
	}
	b, err := os.ReadFile(filepath.Join(s.dir, args.Path))
	return string(b), err
}
