package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/client"
	"github.com/troupe-dev/troupe/messages"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hold serves a handler, and what every holder answers, on the socket of a data directory.
func hold(t *testing.T, dir string, h http.HandlerFunc) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(dir, "troupe.sock"))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"pid":7,"data":"/d"}`) })
	mux.HandleFunc("/", h)
	srv := &http.Server{Handler: mux}
	done := make(chan struct{})
	go func() {
		_ = srv.Serve(l)
		close(done)
	}()
	stop = func() {
		srv.Close()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

func dial(t *testing.T, dir string) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestDialWithoutAHolderSaysSo(t *testing.T) {
	dir := t.TempDir()
	dead := t.TempDir()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dead, "troupe.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	for name, dir := range map[string]string{"empty": dir, "missing": filepath.Join(dir, "x"), "a dead one's": dead} {
		if _, err := client.Dial(t.Context(), dir); !errors.Is(err, client.ErrNoHolder) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left, err := os.ReadDir(dir); len(left) != 0 || err != nil {
		t.Errorf("dialling made %v, %v", left, err)
	}
}

func TestTheSocketIsWhereTheFileSaysElseInTheFolder(t *testing.T) {
	dir := t.TempDir()
	own := filepath.Join(dir, "troupe.sock")
	name := filepath.Join(dir, "socket")
	for _, c := range []struct{ content, want string }{
		{"/run/user/1/troupe/a.sock", "/run/user/1/troupe/a.sock"},
		{"/run/user/1/troupe/a.sock\n", "/run/user/1/troupe/a.sock"},
		{"relative.sock", own},
		{"", own},
		{"/" + strings.Repeat("x", 5000), own},
	} {
		if err := os.WriteFile(name, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := client.SocketPath(dir); got != c.want {
			t.Errorf("%.40q: %s, want %s", c.content, got, c.want)
		}
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if got := client.SocketPath(dir); got != own {
		t.Errorf("without a file: %s", got)
	}
}

func TestProblemsAreFailuresAndOtherRefusalsSayWhatCameBack(t *testing.T) {
	dir := t.TempDir()
	hold(t, dir, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/calls" {
			http.Error(w, "no idea", http.StatusTeapot)
			return
		}
		w.Header().Set("Content-Type", messages.ProblemType)
		w.WriteHeader(http.StatusConflict)
		fmt.Fprint(w, `{"code":"busy","detail":"a turn is open","hint":"wait"}`)
	})
	c := dial(t, dir)
	var f *messages.Failure
	_, err := c.Ask(t.Context(), &messages.ListSessions{})
	if !errors.As(err, &f) || !proto.Equal(f, messages.Fail("busy", "a turn is open", "wait")) {
		t.Errorf("got %v", err)
	}
	_, err = c.Ask(t.Context(), &messages.ListCalls{})
	if !errors.As(err, &f) || f.GetCode() != messages.CodeInternal || !strings.Contains(f.GetMessage(), "418") {
		t.Errorf("got %v", err)
	}
}

// TestARequestThatCameTooSoonIsSentAgain: nothing of it was done, whatever it is.
func TestARequestThatCameTooSoonIsSentAgain(t *testing.T) {
	dir := t.TempDir()
	var sent, refuse atomic.Int32
	hold(t, dir, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !strings.Contains(string(body), "said") {
			t.Errorf("request %d has the body %q", sent.Load(), body)
		}
		if sent.Add(1) <= refuse.Load() {
			w.Header().Set("Content-Type", messages.ProblemType)
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(w, `{"code":"rate_limited","detail":"too many"}`)
			return
		}
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprint(w, `{"input_id":"i","seq":4}`)
	})
	c := dial(t, dir)
	ask := func() error {
		_, err := c.Ask(t.Context(), &messages.ToSession{SessionId: "ses_1", Command: &messages.ToSession_Submit{Submit: &messages.SubmitInput{
			InputId: "i", Parts: []*messages.Part{{Kind: &messages.Part_Text{Text: "said"}}},
		}}})
		return err
	}
	refuse.Store(3)
	if err := ask(); err != nil || sent.Load() != 4 {
		t.Errorf("sent %d times: %v", sent.Load(), err)
	}
	sent.Store(0)
	refuse.Store(100)
	var f *messages.Failure
	if err := ask(); !errors.As(err, &f) || f.GetCode() != messages.CodeRate || sent.Load() != 5 {
		t.Errorf("sent %d times: %v", sent.Load(), err)
	}
}

func TestWhatNoSurfaceMayAskIsRefusedHere(t *testing.T) {
	dir := t.TempDir()
	hold(t, dir, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("sent %s %s", r.Method, r.URL) })
	c := dial(t, dir)
	for _, m := range []proto.Message{
		&messages.Configure{}, &messages.ToSession{SessionId: "ses_1"}, &messages.CreateSession{Tenant: "t"},
		&messages.ToSession{SessionId: "ses_1", Command: &messages.ToSession_Subscribe{Subscribe: &messages.Subscribe{}}},
		&messages.ToSession{SessionId: "ses_1", Command: &messages.ToSession_Unsubscribe{Unsubscribe: &messages.Unsubscribe{}}},
		&messages.ToSession{SessionId: "ses_1", Command: &messages.ToSession_Submit{Submit: &messages.SubmitInput{Origin: messages.InputAccepted_TIMER}}},
	} {
		var f *messages.Failure
		if _, err := c.Ask(t.Context(), m); !errors.As(err, &f) || f.GetCode() != messages.CodeBadRequest {
			t.Errorf("%T: %v", m, err)
		}
	}
}

func TestInputsAndCallsWithoutAnIDGetOne(t *testing.T) {
	dir := t.TempDir()
	bodies := make(chan map[string]any, 2)
	keys := make(chan string, 2)
	hold(t, dir, func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		bodies <- body
		keys <- r.Header.Get("Idempotency-Key")
		fmt.Fprint(w, `{}`)
	})
	c := dial(t, dir)
	submit, call := &messages.SubmitInput{}, &messages.CallTool{Tool: "exec"}
	for field, m := range map[string]*messages.ToSession{
		"input_id": {SessionId: "ses_1", Command: &messages.ToSession_Submit{Submit: submit}},
		"call_id":  {SessionId: "ses_1", Command: &messages.ToSession_CallTool{CallTool: call}},
	} {
		if _, err := c.Ask(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		id, _ := (<-bodies)[field].(string)
		if key := <-keys; len(id) < 32 || key != id {
			t.Errorf("%s %q, key %q", field, id, key)
		}
	}
	if submit.GetInputId() != "" || call.GetCallId() != "" {
		t.Error("the caller's message was changed")
	}
}

func TestAFileGoesByItsNameAndToTheByte(t *testing.T) {
	dir := t.TempDir()
	kept := map[string][]byte{}
	hold(t, dir, func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodPut:
			b, err := io.ReadAll(r.Body)
			if err != nil || r.Header.Get("Content-Type") != "application/octet-stream" {
				t.Errorf("%v %v", r.Header, err)
			}
			kept[r.URL.EscapedPath()] = b
			fmt.Fprintf(w, `{"id":"x","state":"file","size":%d}`, len(b))
		case http.MethodGet:
			_, _ = w.Write(kept[r.URL.EscapedPath()])
		}
	})
	c := dial(t, dir)
	use := func(m *messages.UseFile) *messages.Files {
		t.Helper()
		r, err := c.Ask(t.Context(), &messages.ToSession{SessionId: "ses_1", Command: &messages.ToSession_UseFile{UseFile: m}})
		if err != nil {
			t.Fatal(err)
		}
		return r.(*messages.Files)
	}
	for name, at := range map[string]string{"a b/c?d": "a%20b/c%3Fd", "x": "x", "%2e": "%252e"} {
		for _, data := range []string{"", "\x00\xff{}", "text"} {
			if e := use(&messages.UseFile{Action: messages.UseFile_PUT, Path: name, Data: []byte(data)}).GetEntries(); len(e) != 1 || e[0].GetSize() != int64(len(data)) {
				t.Errorf("put %s: %v", name, e)
			}
			if got, ok := kept["/api/sessions/ses_1/files/"+at]; !ok || string(got) != data {
				t.Errorf("%s: kept %q", name, kept)
			}
			if got := use(&messages.UseFile{Action: messages.UseFile_READ, Path: name}).GetData(); string(got) != data {
				t.Errorf("%s came back as %q", name, got)
			}
		}
	}
}

func TestAskEndsWithItsContextAndWithTheClient(t *testing.T) {
	dir := t.TempDir()
	came := make(chan struct{})
	hold(t, dir, func(_ http.ResponseWriter, r *http.Request) {
		came <- struct{}{}
		<-r.Context().Done()
	})
	c := dial(t, dir)
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	ask := func(ctx context.Context) {
		_, err := c.Ask(ctx, &messages.ListSessions{})
		done <- err
	}
	go ask(ctx)
	<-came
	cancel(enough)
	if err := <-done; !errors.Is(err, enough) {
		t.Errorf("a cancelled question ended with %v", err)
	}
	go ask(t.Context())
	<-came
	c.Close()
	if err := <-done; !errors.Is(err, client.ErrClosed) {
		t.Errorf("closing ended it with %v", err)
	}
	if _, err := c.Ask(t.Context(), &messages.ListSessions{}); !errors.Is(err, client.ErrClosed) {
		t.Errorf("afterwards: %v", err)
	}
	for _, err := range c.Events(t.Context(), "ses_1", 0) {
		if !errors.Is(err, client.ErrClosed) {
			t.Errorf("events afterwards: %v", err)
		}
	}
}

func TestAHolderThatDiesEndsAQuestionWithAnError(t *testing.T) {
	dir := t.TempDir()
	came := make(chan struct{})
	stop := hold(t, dir, func(_ http.ResponseWriter, r *http.Request) {
		close(came)
		<-r.Context().Done()
	})
	c := dial(t, dir)
	c.Patience(0)
	done := make(chan error, 1)
	go func() {
		_, err := c.Ask(t.Context(), &messages.ListSessions{})
		done <- err
	}()
	<-came
	stop()
	var f *messages.Failure
	if err := <-done; err == nil || errors.As(err, &f) {
		t.Errorf("got %v", err)
	}
	if _, err := c.Ask(t.Context(), &messages.ListSessions{}); !errors.Is(err, client.ErrNoHolder) {
		t.Errorf("afterwards: %v", err)
	}
}
