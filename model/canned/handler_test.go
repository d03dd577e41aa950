package canned_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/model/canned"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// source gives one answer, and counts those that nobody heard.
type source struct {
	answer  canned.Answer
	asked   chan struct{}
	unheard atomic.Int64
}

func (*source) Title() string { return "source" }

func (s *source) Answer(*model.Request) (*canned.Answer, error) {
	a := s.answer
	a.Unheard = func() { s.unheard.Add(1) }
	s.asked <- struct{}{}
	return &a, nil
}

// What a client did not wait for is given back, once, also when it is a failure; a failure that was told is not.
func TestWhatNobodyHeardIsGivenBackOnce(t *testing.T) {
	full := &canned.Failure{Class: model.Overloaded, Status: http.StatusServiceUnavailable, Message: "full"}
	for name, tc := range map[string]struct {
		answer  canned.Answer
		unheard int64
	}{
		"a failure to come":   {canned.Answer{Fail: full, Delay: time.Hour}, 1},
		"an answer to come":   {canned.Answer{Text: "hi", Delay: time.Hour, Cut: -1}, 1},
		"a failure":           {canned.Answer{Fail: full}, 0},
		"an answer":           {canned.Answer{Text: "hi", Cut: -1}, 0},
		"an answer, cut off":  {canned.Answer{Text: "hi", Cut: 1}, 1},
		"a stream that fails": {canned.Answer{Fail: &canned.Failure{Class: model.Truncated, Status: http.StatusOK}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := &source{answer: tc.answer, asked: make(chan struct{}, 1)}
			s.answer.Usage = &messages.Usage{}
			srv := httptest.NewServer(canned.Handler(s, canned.ServeOptions{}))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL+"/v1/chat/completions", strings.NewReader(`{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}]}`))
			if err != nil {
				t.Fatal(err)
			}
			if tc.answer.Delay > 0 {
				go func() { <-s.asked; cancel() }()
			}
			if resp, err := srv.Client().Do(req); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body) // one may break off
				_ = resp.Body.Close()
			} else if tc.answer.Delay == 0 {
				t.Fatal(err)
			}
			srv.Client().CloseIdleConnections()
			srv.Close() // when all requests have ended
			if n := s.unheard.Load(); n != tc.unheard {
				t.Errorf("it was given back %d times, not %d", n, tc.unheard)
			}
		})
	}
}
