package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/client"
	"github.com/troupe-dev/troupe/messages"
)

// mortals serve a data directory one after the other: the next begins when one has ended. Each answers who it is, and anything else as
// it is told to; die ends the one that answers, with all its connections.
func mortals(t *testing.T, dir string, answer func(w http.ResponseWriter, r *http.Request, die func())) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	began := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for life := 1; ctx.Err() == nil; life++ {
			l, err := net.Listen("unix", filepath.Join(dir, "troupe.sock"))
			if err != nil {
				t.Error(err)
				return
			}
			mux, one, die, gone := http.NewServeMux(), sync.Once{}, make(chan struct{}), make(chan struct{})
			mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
				fmt.Fprintf(w, `{"pid":1,"data":"/d","started_at":%q}`, time.Unix(int64(life), 0).UTC().Format(time.RFC3339))
			})
			mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
				answer(w, r, func() {
					one.Do(func() { close(die) })
					<-gone
				})
			})
			srv := &http.Server{Handler: mux}
			go func() {
				select {
				case <-die:
				case <-ctx.Done():
				}
				srv.Close()
				close(gone)
			}()
			if life == 1 {
				close(began)
			}
			_ = srv.Serve(l)
			<-gone
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	<-began
}

// TestWhatServersEndOfIsNotSentForEver has each server end some time after it got the request, longer than what tells that it was back.
func TestWhatServersEndOfIsNotSentForEver(t *testing.T) {
	for _, what := range []string{"an input", "a list", "a stream"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			var sent atomic.Int32
			mortals(t, dir, func(w http.ResponseWriter, r *http.Request, die func()) {
				stream := what == "a stream"
				if stream {
					w.Header().Set("Content-Type", "text/event-stream")
				}
				switch n := sent.Add(1); {
				case n == 1 && stream: // it was there once
					fmt.Fprint(w, sse(1))
				case n > 20:
					fmt.Fprint(w, map[bool]string{true: sse(2), false: "{}"}[stream])
				case stream:
					w.WriteHeader(http.StatusOK)
					_ = http.NewResponseController(w).Flush()
					fallthrough
				default:
					<-time.After(300 * time.Millisecond)
					die()
				}
			})
			c := dial(t, dir)
			c.Patience(2 * time.Second) // which the next one has to begin in, on a busy machine, too
			var err error
			switch what {
			case "an input":
				_, err = c.Ask(t.Context(), said())
			case "a list":
				_, err = c.Ask(t.Context(), &messages.ListApprovals{})
			default:
				for e, broken := range c.Events(t.Context(), "ses_1", 0) {
					if err = broken; e.GetSeq() > 1 {
						break
					}
				}
			}
			if n := sent.Load(); !errors.Is(err, client.ErrEnds) || n < 6 || n > 8 || !strings.Contains(err.Error(), "not sent again") {
				t.Errorf("sent %d times: %v", n, err)
			}
		})
	}
}

// TestABrokenConnectionIsNoServerThatEnded: it is the same one that answers afterwards, however often.
func TestABrokenConnectionIsNoServerThatEnded(t *testing.T) {
	dir := t.TempDir()
	var sent atomic.Int32
	mortals(t, dir, func(w http.ResponseWriter, _ *http.Request, _ func()) {
		if sent.Add(1) > 12 {
			fmt.Fprint(w, "{}")
			return
		}
		<-time.After(60 * time.Millisecond)
		panic(http.ErrAbortHandler)
	})
	c := dial(t, dir)
	c.Patience(400 * time.Millisecond)
	if _, err := c.Ask(t.Context(), said()); err != nil || sent.Load() != 13 {
		t.Errorf("sent %d times: %v", sent.Load(), err)
	}
}

// TestServersThatStopInOrderHaveNotEndedOfARequest: they say that they stop, and the request waits for the next one.
func TestServersThatStopInOrderHaveNotEndedOfARequest(t *testing.T) {
	dir := t.TempDir()
	var sent atomic.Int32
	mortals(t, dir, func(w http.ResponseWriter, _ *http.Request, die func()) {
		n := sent.Add(1)
		if n > 7 {
			fmt.Fprint(w, "{}")
			return
		}
		<-time.After(60 * time.Millisecond)
		if n == 1 {
			die()
			return
		}
		const text = `{"code":"unavailable","detail":"the server is stopping"}`
		w.Header().Set("Content-Type", messages.ProblemType)
		w.Header().Set("Content-Length", strconv.Itoa(len(text))) // it is whole, whatever becomes of its connection
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, text)
		_ = http.NewResponseController(w).Flush()
		die()
	})
	c := dial(t, dir)
	c.Patience(5 * time.Second)
	if _, err := c.Ask(t.Context(), said()); err != nil || sent.Load() != 8 {
		t.Errorf("sent %d times: %v", sent.Load(), err)
	}
}
