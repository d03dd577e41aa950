package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// modelProcess is the process that serves the answers.
type modelProcess struct {
	*child
	base string
}

func startModel(ctx context.Context) (*modelProcess, error) {
	c, err := begin(ctx, childModel, nil)
	if err != nil {
		return nil, err
	}
	base, err := c.line()
	if err != nil {
		return nil, fmt.Errorf("serve the scripted model: %w", err)
	}
	return &modelProcess{c, base}, nil
}

// serveModel says where it serves, and serves until ctx ends.
func serveModel(ctx context.Context, _ []byte, out io.Writer) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("serve the scripted model: %w", err)
	}
	srv := &http.Server{Handler: &answers{}, ReadHeaderTimeout: time.Minute}
	context.AfterFunc(ctx, func() { _ = srv.Close() }) // what is open belongs to a run that has ended
	if _, err := fmt.Fprintf(out, "http://%s/v1\n", l.Addr()); err != nil {
		return errors.Join(err, l.Close())
	}
	return srv.Serve(l)
}

// answers is a script of two lines: who has just got the result of a tool is told something short, anybody else is told to read a
// note. Unlike package script it reads no more of a request than the role of its last message: a longer conversation must not
// look slower because the double of the model is.
type answers struct{ count atomic.Int64 }

// ServeHTTP answers one request with a stream of events.
func (a *answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Troupe-Scripted", "bench")
	id := strconv.FormatInt(a.count.Add(1), 10)
	events := calling(id)
	role := []byte(`"role":"`)
	if i := bytes.LastIndex(body, role); i >= 0 && bytes.HasPrefix(body[i+len(role):], []byte("tool")) {
		events = saying()
	}
	flush := http.NewResponseController(w)
	for _, e := range events {
		_, err := fmt.Fprintf(w, "data: {\"id\":\"%s\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"bench\",%s}\n\n", id, e)
		if err != nil || flush.Flush() != nil {
			return // the client has gone
		}
	}
	_, _ = io.WriteString(w, "data: [DONE]\n\n") // the client has all that it needs
}

func delta(d, finish string) string {
	return `"choices":[{"index":0,"delta":` + d + `,"finish_reason":` + finish + `}]`
}

// usage is made up: nothing counted tokens.
const usage = `"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120}`

func calling(id string) []string {
	return []string{
		delta(`{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_`+id+`","type":"function","function":{"name":"read_file","arguments":""}}]}`, "null"),
		delta(`{"tool_calls":[{"index":0,"function":{"arguments":"{\"path\": \"`+note+`\"}"}}]}`, "null"),
		delta(`{}`, `"tool_calls"`), usage,
	}
}

func saying() []string {
	return []string{
		delta(`{"role":"assistant","content":""}`, "null"), delta(`{"content":"The note says "}`, "null"),
		delta(`{"content":"that the work goes on."}`, "null"), delta(`{}`, `"stop"`), usage,
	}
}

// note is the file that each turn reads.
const note = "note.txt"
