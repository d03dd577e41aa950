package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/model/script"
)

// endpoint is the model of a run: a script behind real HTTP, strict as a provider is, with faults. It
// lives outside of what is killed, and remembers every request.
type endpoint struct {
	URL   string
	turns map[int]turn
	next  http.Handler
	kill  func(turn int) // kills the runtime that asks about a turn

	srv    *http.Server
	served chan error

	mu       sync.Mutex
	requests map[int][]Request // by turn; 0: of none that is known
	met      map[string]int    // faults that a step has met
}

// newEndpoint serves the turns on a free loopback port, until close.
func newEndpoint(ctx context.Context, turns []turn) (*endpoint, error) {
	s, err := script.Parse("chaos.yaml", scriptOf(turns))
	if err != nil {
		return nil, fmt.Errorf("make the script: %w", err)
	}
	e := &endpoint{
		turns: make(map[int]turn), next: script.Handler(s, script.ServeOptions{}), kill: func(int) {}, served: make(chan error, 1),
		requests: make(map[int][]Request), met: make(map[string]int),
	}
	for _, t := range turns {
		e.turns[t.n] = t
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("serve the scripted model: %w", err)
	}
	e.URL = "http://" + l.Addr().String() + "/v1"
	e.srv = &http.Server{Handler: e, ReadHeaderTimeout: time.Minute}
	go func() { e.served <- e.srv.Serve(l) }()
	return e, nil
}

func (e *endpoint) close() error {
	err := e.srv.Close() // what is open belongs to runtimes that have ended
	if ended := <-e.served; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("serve the scripted model: %w", ended))
	}
	return err
}

// wireRequest is what is read of a request's body.
type wireRequest struct {
	Model    string `json:"model"`
	Messages []struct {
		Role    string `json:"role"`
		Content string `json:"content"`
		CallID  string `json:"tool_call_id"`
		Calls   []struct {
			ID       string `json:"id"`
			Function struct {
				Name      string `json:"name"`
				Arguments string `json:"arguments"`
			} `json:"function"`
		} `json:"tool_calls"`
	} `json:"messages"`
}

// ServeHTTP remembers a request, then answers it or lets it meet its fault.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if r.Method != http.MethodPost {
		e.next.ServeHTTP(w, r)
		return
	}
	var in wireRequest
	if err := json.Unmarshal(body, &in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	kind, n, at, q := readRequest(&in)
	fault := Fault("")
	if kind == kindTurn {
		fault = e.fault(n, at, q.Model)
	}
	q.Served = "ok"
	if fault != "" {
		q.Served = string(fault)
	}
	e.mu.Lock()
	e.requests[n] = append(e.requests[n], q)
	e.mu.Unlock()
	e.answer(w, r, n, fault)
}

// readRequest finds the turn and the step of a request.
func readRequest(in *wireRequest) (kind string, n, at int, q Request) {
	q.Model = in.Model
	for _, m := range in.Messages {
		msg := Message{Role: m.Role, Content: m.Content, CallID: m.CallID}
		for _, c := range m.Calls {
			msg.Calls = append(msg.Calls, Call{ID: c.ID, Name: c.Function.Name, Arguments: c.Function.Arguments})
		}
		q.Messages = append(q.Messages, msg)
		switch m.Role {
		case "user":
			kind, n, at = "", 0, 0
			_, _ = fmt.Sscanf(m.Content, "chaos %s %d", &kind, &n) // 0 when it is none of ours
		case "assistant":
			at++
		}
	}
	return kind, n, at, q
}

// fault is what a request to a model meets: those of its step in order, each once, then none. A model that is gone stays gone for the whole step.
func (e *endpoint) fault(n, at int, model string) Fault {
	t, known := e.turns[n]
	if !known || at >= len(t.steps) {
		return ""
	}
	if slices.Contains(t.steps[at].faults, Gone) {
		if model == ownModel {
			return Gone
		}
		return ""
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	key := fmt.Sprint(n, "/", at)
	if e.met[key] >= len(t.steps[at].faults) {
		return ""
	}
	e.met[key]++
	return t.steps[at].faults[e.met[key]-1]
}

func (e *endpoint) answer(w http.ResponseWriter, r *http.Request, n int, f Fault) {
	switch f {
	case RateLimit, Overload:
		w.Header().Set("Retry-After-Ms", "5")
		w.Header().Set("Content-Type", "application/json")
		status := http.StatusTooManyRequests
		if f == Overload {
			status = http.StatusInternalServerError
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{"error":{"message":"the plan of this run says so","type":"requests"}}`) // the client may be gone
	case Gone:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"error":{"message":"the plan of this run says that there is no such model","type":"invalid_request_error","code":"model_not_found"}}`) // the client may be gone
	case Cut, Drop, KillHere:
		e.next.ServeHTTP(&cutting{ResponseWriter: w, room: 700}, r)
		_ = http.NewResponseController(w).Flush() // the client may be gone
		if f == KillHere {
			e.kill(n)
		}
		if f == Cut {
			return
		}
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = conn.Close() // it breaks off
		}
	default:
		e.next.ServeHTTP(w, r)
	}
}

// asked is what the model was asked about some turns, in order of the turns.
func (e *endpoint) asked(turns []turn) []Request {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []Request
	for _, t := range turns {
		out = append(out, e.requests[t.n]...)
	}
	return out
}

var errCut = errors.New("cut by the plan")

// cutting lets some bytes through.
type cutting struct {
	http.ResponseWriter
	room int
}

// Write passes what there is room for, and fails then: the script's handler stops.
func (c *cutting) Write(b []byte) (int, error) {
	if len(b) <= c.room {
		c.room -= len(b)
		return c.ResponseWriter.Write(b)
	}
	n, err := c.ResponseWriter.Write(b[:c.room])
	c.room = 0
	return n, errors.Join(err, errCut)
}
