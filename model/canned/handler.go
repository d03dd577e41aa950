package canned

import (
	"crypto/subtle"
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/troupe-dev/troupe/model"
)

// ServeOptions make the endpoint misbehave for every request, besides what the rules say for
// theirs. The zero value answers at once and well.
type ServeOptions struct {
	APIKey        string        // when set, requests need it as their bearer token
	Latency       time.Duration // before each answer
	ChunkDelay    time.Duration // before each event
	ChunkSize     int           // characters per event, over the rules' own
	TruncateAfter int           // bytes of a stream after which it ends; 0: never
	FailFirst     int           // requests to refuse before the first is answered
	FailStatus    int           // of those; default 429
	RetryAfter    time.Duration // said with those
	Garbage       bool          // events that are not JSON
	MaxBody       int64         // bytes of a request; default 64 MiB
}

// Stats count what an endpoint did; GET /stats gives them as JSON.
type Stats struct {
	Requests  int64 `json:"requests"`  // answers asked for
	Answered  int64 `json:"answered"`  // answers given to their end
	Refused   int64 `json:"refused"`   // that a strict provider would not take (400)
	Unmatched int64 `json:"unmatched"` // that no rule fitted
	Failed    int64 `json:"failed"`    // that the script or the options made fail
}

// Handler serves a source as an OpenAI-compatible API: POST /v1/chat/completions and /v1/responses, streaming
// and not, GET /v1/models, and GET /stats. Every response carries X-Troupe-Scripted with the
// source's title and an x-request-id. The source sees X-Troupe-Agent as the agent.
func Handler(s Source, opts ServeOptions) http.Handler {
	if opts.MaxBody <= 0 {
		opts.MaxBody = 64 << 20
	}
	if opts.FailStatus == 0 {
		opts.FailStatus = http.StatusTooManyRequests
	}
	e := &endpoint{source: s, opts: opts}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", e.chat(readRequest))
	mux.HandleFunc("POST /v1/responses", e.chat(readResponses))
	mux.HandleFunc("GET /v1/models", e.models)
	mux.HandleFunc("GET /v1/models/{id...}", e.oneModel)
	mux.HandleFunc("GET /stats", e.stats)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		e.fail(w, http.StatusNotFound, problem{Message: "unknown request URL: " + r.Method + " " + r.URL.Path, Type: "invalid_request_error", Code: "unknown_url"})
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Troupe-Scripted", s.Title())
		w.Header().Set("X-Request-Id", "scripted-"+strconv.FormatInt(e.ids.Add(1), 10))
		if opts.APIKey != "" && subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+opts.APIKey)) != 1 {
			e.fail(w, http.StatusUnauthorized, problem{Message: "incorrect API key provided", Type: "invalid_request_error", Code: "invalid_api_key"})
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// endpoint is one served source.
type endpoint struct {
	source Source
	opts   ServeOptions
	ids    atomic.Int64

	requests, answered, refused, unmatched, failed atomic.Int64
}

// problem is the error object of OpenAI's API, with a hint.
type problem struct {
	Message string `json:"message"`
	Type    string `json:"type"`
	Param   string `json:"param,omitempty"`
	Code    string `json:"code,omitempty"`
	Hint    string `json:"hint,omitempty"`
}

func (e *endpoint) fail(w http.ResponseWriter, status int, p problem) {
	respond(w, status, map[string]problem{"error": p})
}

func respond(w http.ResponseWriter, status int, body any) {
	b, err := JSON(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // the client has gone
}

// chat answers requests that are read in one way or the other.
func (e *endpoint) chat(read func(body []byte) (*chatRequest, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { e.asked(w, r, read) }
}

func (e *endpoint) asked(w http.ResponseWriter, r *http.Request, read func(body []byte) (*chatRequest, error)) {
	n := e.requests.Add(1)
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, e.opts.MaxBody))
	if err != nil {
		e.refused.Add(1)
		e.fail(w, http.StatusRequestEntityTooLarge, problem{Message: "read the body: " + err.Error(), Type: "invalid_request_error"})
		return
	}
	req, err := read(body)
	if err != nil {
		e.refuse(w, err)
		return
	}
	if n <= int64(e.opts.FailFirst) {
		e.failed.Add(1)
		e.failWith(w, &Failure{Class: ClassOf(e.opts.FailStatus), Status: e.opts.FailStatus, After: e.opts.RetryAfter, Message: "the options say so"})
		return
	}
	a, err := e.source.Answer(req.request(r.Header.Get("X-Troupe-Agent")))
	if err != nil {
		e.unscripted(w, err)
		return
	}
	if wait(r.Context(), e.opts.Latency) != nil || wait(r.Context(), a.Delay) != nil {
		a.unheard() // the client has gone
		return
	}
	switch {
	case e.give(w, r, req, a):
		e.answered.Add(1)
	case a.Fail == nil:
		a.unheard()
	}
}

// give writes an answer; false when it was not heard to its end, or is none.
func (e *endpoint) give(w http.ResponseWriter, r *http.Request, req *chatRequest, a *Answer) bool {
	if e.opts.ChunkSize > 0 {
		a.Chunk = e.opts.ChunkSize
	}
	a.Garbage = a.Garbage || e.opts.Garbage
	if a.Fail != nil {
		e.failed.Add(1)
		if a.Fail.Status != http.StatusOK {
			e.failWith(w, a.Fail)
			return false
		}
		// Such a failure begins well: the stream breaks off, or is no stream.
		a.Cut, a.Garbage = 0, a.Fail.Class == model.Protocol
	}
	if req.Stream {
		return e.stream(r.Context(), w, req, a)
	}
	return e.whole(w, req, a)
}

func (e *endpoint) refuse(w http.ResponseWriter, err error) {
	e.refused.Add(1)
	p := problem{Message: err.Error(), Type: "invalid_request_error"}
	var r *refusal
	if errors.As(err, &r) {
		p.Param = r.param
	}
	e.fail(w, http.StatusBadRequest, p)
}

func (e *endpoint) unscripted(w http.ResponseWriter, err error) {
	p := problem{Message: err.Error(), Type: "script_error", Code: "script_failed"}
	var me *model.Error
	if errors.As(err, &me) && me.Class == model.Unmatched {
		e.unmatched.Add(1)
		p.Message, p.Code, p.Hint = me.Message, "unmatched", me.Hint
	}
	e.fail(w, http.StatusBadRequest, p)
}

// failWith answers as a provider does for the class of a failure.
func (e *endpoint) failWith(w http.ResponseWriter, f *Failure) {
	if f.After > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(f.After.Seconds()))))
		w.Header().Set("Retry-After-Ms", strconv.FormatInt(f.After.Milliseconds(), 10))
	}
	p := problem{Message: f.Message, Type: "invalid_request_error"}
	switch f.Class {
	case model.RateLimited:
		p.Type, p.Code = "requests", "rate_limit_exceeded"
	case model.Overloaded, model.Timeout:
		p.Type = "server_error"
	case model.ContextLength:
		p.Code = "context_length_exceeded"
	case model.Auth:
		p.Code = "invalid_api_key"
		if f.Status == http.StatusTooManyRequests {
			p.Code = "insufficient_quota"
		}
	case model.NotFound:
		p.Code = "model_not_found"
	case model.BadRequest, model.Truncated, model.Protocol, model.Unmatched:
	}
	if f.Class == model.Timeout {
		p.Type = "timeout"
	}
	e.fail(w, f.Status, p)
}

type modelInfo struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

func (e *endpoint) info() modelInfo {
	return modelInfo{ID: e.source.Title(), Object: "model", OwnedBy: "troupe-script"}
}

func (e *endpoint) models(w http.ResponseWriter, _ *http.Request) {
	respond(w, http.StatusOK, map[string]any{"object": "list", "data": []modelInfo{e.info()}})
}

func (e *endpoint) oneModel(w http.ResponseWriter, r *http.Request) {
	if id := r.PathValue("id"); id != e.source.Title() {
		e.fail(w, http.StatusNotFound, problem{Message: "the model '" + id + "' does not exist", Type: "invalid_request_error", Param: "model", Code: "model_not_found"})
		return
	}
	respond(w, http.StatusOK, e.info())
}

func (e *endpoint) stats(w http.ResponseWriter, _ *http.Request) {
	respond(w, http.StatusOK, Stats{
		Requests: e.requests.Load(), Answered: e.answered.Load(), Refused: e.refused.Load(),
		Unmatched: e.unmatched.Load(), Failed: e.failed.Load(),
	})
}
