package mcp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/tools/mcp"
)

// TestMain lets this program be an MCP server over stdio.
func TestMain(m *testing.M) {
	if os.Getenv("TROUPE_TEST_MCP") != "" {
		if err := server().Run(context.Background(), &sdk.StdioTransport{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

type text struct {
	Text string `json:"text" jsonschema:"What is said."`
}

// server has a tool for each thing that a server may do.
func server() *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	say := func(name string, a *sdk.ToolAnnotations, fn func(ctx context.Context, r *sdk.CallToolRequest, text string) (*sdk.CallToolResult, error)) {
		sdk.AddTool(s, &sdk.Tool{Name: name, Description: "Does " + name + ".", Annotations: a}, func(ctx context.Context, r *sdk.CallToolRequest, in text) (*sdk.CallToolResult, any, error) {
			got, err := fn(ctx, r, in.Text)
			return got, nil, err
		})
	}
	said := func(s string) *sdk.CallToolResult {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: s}}}
	}
	say("echo", &sdk.ToolAnnotations{ReadOnlyHint: true}, func(_ context.Context, _ *sdk.CallToolRequest, text string) (*sdk.CallToolResult, error) {
		return said("you said " + text), nil
	})
	say("getSum", &sdk.ToolAnnotations{IdempotentHint: true}, func(context.Context, *sdk.CallToolRequest, string) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "a picture:"}, &sdk.ImageContent{MIMEType: "image/png", Data: []byte("1234")}}}, nil
	})
	say("get-sum", nil, func(context.Context, *sdk.CallToolRequest, string) (*sdk.CallToolResult, error) {
		return said("the other"), nil
	})
	say("die", nil, func(context.Context, *sdk.CallToolRequest, string) (*sdk.CallToolResult, error) {
		os.Exit(3)
		return nil, nil
	})
	say("fail", nil, func(context.Context, *sdk.CallToolRequest, string) (*sdk.CallToolResult, error) {
		return nil, errors.New("it is broken")
	})
	say("big", nil, func(context.Context, *sdk.CallToolRequest, string) (*sdk.CallToolResult, error) {
		return said("\x1b[2J" + strings.Repeat("line\n", 50_000)), nil
	})
	say("environment", nil, func(context.Context, *sdk.CallToolRequest, string) (*sdk.CallToolResult, error) {
		return said(strings.Join(os.Environ(), "\n")), nil
	})
	say("wait", nil, func(ctx context.Context, r *sdk.CallToolRequest, _ string) (*sdk.CallToolResult, error) {
		_ = r.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: 3, Total: 9, Message: "on it"})
		<-ctx.Done()
		return nil, ctx.Err()
	})
	say("spawn", nil, func(context.Context, *sdk.CallToolRequest, string) (*sdk.CallToolResult, error) {
		cmd := exec.Command("sleep", "1000") // its output is the server's, which must not keep anybody waiting
		cmd.Stderr = os.Stderr
		err := cmd.Start()
		if err != nil {
			return nil, err
		}
		return said(fmt.Sprint(cmd.Process.Pid)), nil
	})
	say("roots", nil, func(ctx context.Context, r *sdk.CallToolRequest, _ string) (*sdk.CallToolResult, error) {
		roots, err := r.Session.ListRoots(ctx, nil) //nolint:staticcheck // deprecated, and what servers do
		if roots != nil {
			return said(fmt.Sprintf("%d roots", len(roots.Roots))), nil
		}
		return nil, err
	})
	return s
}

func connect(t *testing.T, o mcp.Options) *mcp.Server {
	t.Helper()
	if o.URL == "" && o.Command == nil {
		o.Command = []string{os.Args[0]}
		o.Env = append(o.Env, "TROUPE_TEST_MCP=1")
	}
	s, err := mcp.Connect(t.Context(), "my-Server", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func call(ctx context.Context, t *testing.T, s *mcp.Server, name, args string) (*tools.Result, error) {
	t.Helper()
	for _, tool := range s.Tools() {
		if tool.Spec().Name == name {
			return tool.Run(&tools.Context{Signal: ctx, ExecID: "exe_1"}, json.RawMessage(args))
		}
	}
	t.Fatalf("there is no %s", name)
	return nil, nil
}

// unknown tells an end of a call that nobody knows the outcome of.
func unknown(err error) bool {
	var refused *tools.Error
	return errors.As(err, &refused) && refused.Unknown && refused.Code == tools.CodeInterrupted && strings.HasSuffix(refused.Message, tools.UnknownText)
}

func code(err error) string {
	var refused *tools.Error
	if errors.As(err, &refused) {
		return refused.Code
	}
	return fmt.Sprint(err)
}

func TestToolsOfAServerAreToolsHere(t *testing.T) {
	s := connect(t, mcp.Options{})
	var names []string
	effects := map[string]messages.Effect_Class{}
	for _, tool := range s.Tools() {
		spec := tool.Spec()
		names = append(names, spec.Name)
		effects[spec.Name] = spec.Effect
		if spec.Server != "my-Server" || !spec.NoWorkspace || spec.Description == "" {
			t.Errorf("%+v", spec)
		}
	}
	if !slices.IsSorted(names) || !slices.Contains(names, "my_server_get_sum") || !slices.Contains(names, "my_server_get_sum_2") {
		t.Errorf("%v", names)
	}
	if effects["my_server_echo"] != messages.Effect_PURE || effects["my_server_die"] != messages.Effect_AT_MOST_ONCE ||
		effects["my_server_get_sum"] != messages.Effect_AT_MOST_ONCE || effects["my_server_get_sum_2"] != messages.Effect_IDEMPOTENT { // get-sum, getSum
		t.Errorf("%v", effects)
	}
	if r, err := call(t.Context(), t, s, "my_server_echo", `{"text":"hi"}`); err != nil || r.Content != "you said hi" {
		t.Errorf("%v %v", r, err)
	}
	for _, name := range []string{"my_server_get_sum", "my_server_get_sum_2"} {
		if r, err := call(t.Context(), t, s, name, `{"text":""}`); err != nil || r.Content != "the other" && r.Content != "a picture:\n[image, image/png, 4 bytes]" {
			t.Errorf("%v %v", r, err)
		}
	}
	if _, err := call(t.Context(), t, s, "my_server_fail", `{"text":""}`); code(err) != tools.CodeValidationFailed || !strings.Contains(err.Error(), "it is broken") {
		t.Errorf("%v", err)
	}
	if r, err := call(t.Context(), t, s, "my_server_big", `{"text":""}`); err != nil || !r.Truncated || len(r.Content) > 40_000 || strings.Contains(r.Content, "\x1b") {
		t.Errorf("%v", err)
	}
	if r, err := call(t.Context(), t, s, "my_server_roots", `{"text":""}`); err == nil && r.Content != "0 roots" {
		t.Errorf("it was given %v", r)
	}
	for _, args := range []string{`{}`, `{"text":3}`, `{"text":"a","more":1}`, `[`} {
		if _, err := call(t.Context(), t, s, "my_server_echo", args); code(err) != tools.CodeInvalidArguments {
			t.Errorf("%s: %v", args, err)
		}
	}
}

func TestACommandGetsNothingOfTheEnvironmentThatIsNotMeantForIt(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "sk-canary")
	s := connect(t, mcp.Options{Env: []string{"TOKEN=mine"}})
	r, err := call(t.Context(), t, s, "my_server_environment", `{"text":""}`)
	if err != nil || strings.Contains(r.Content, "sk-canary") || !strings.Contains(r.Content, "TOKEN=mine") || !strings.Contains(r.Content, "PATH=") {
		t.Errorf("%v %v", r, err)
	}
}

func TestAServerThatEndsIsStartedAgainAndItsCallIsNotMadeTwice(t *testing.T) {
	s := connect(t, mcp.Options{})
	_, err := call(t.Context(), t, s, "my_server_die", `{"text":""}`)
	if !unknown(err) {
		t.Fatalf("%v", err)
	}
	for end := time.Now().Add(time.Minute); ; runtime.Gosched() { // until the pause before it is started again is over
		r, err := call(t.Context(), t, s, "my_server_echo", `{"text":"again"}`)
		if err == nil {
			if r.Content != "you said again" {
				t.Errorf("%v", r)
			}
			return
		}
		if c := code(err); c != tools.CodeNetworkError && c != tools.CodeInterrupted || time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func TestACallThatIsCancelledEndsAndTellsItsProgressBefore(t *testing.T) {
	s := connect(t, mcp.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	var seen []*messages.Progress
	for _, tool := range s.Tools() {
		if tool.Spec().Name != "my_server_wait" {
			continue
		}
		_, err := tool.Run(&tools.Context{Signal: ctx, ExecID: "exe_2", Progress: func(p *messages.Progress) {
			mu.Lock()
			seen = append(seen, p)
			mu.Unlock()
			cancel()
		}}, json.RawMessage(`{"text":""}`))
		if code(err) != tools.CodeCancelled {
			t.Errorf("%v", err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(seen) != 1 || seen[0].GetDone() != 3 || seen[0].GetTotal() != 9 || seen[0].GetText() != "on it" || seen[0].GetExecId() != "exe_2" {
		t.Errorf("%v", seen)
	}
}

// TestACallThatIsNotAnsweredInTimeIsOfUnknownOutcome: the server has it. An executor ends its calls with a cause of its own.
func TestACallThatIsNotAnsweredInTimeIsOfUnknownOutcome(t *testing.T) {
	s := connect(t, mcp.Options{})
	for name, cause := range map[string]error{"with a cause": errors.New("the call's time is up"), "without": nil} {
		ctx, cancel := context.WithDeadlineCause(t.Context(), time.Now().Add(-time.Second), cause)
		if cause == nil {
			cancel()
			ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
		}
		_, err := call(ctx, t, s, "my_server_wait", `{"text":""}`)
		if !unknown(err) || !strings.Contains(err.Error(), "did not answer in time") {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := call(ctx, t, s, "my_server_wait", `{"text":""}`); code(err) != tools.CodeCancelled || !strings.Contains(err.Error(), "may have had effects") {
		t.Errorf("cancelled: %v", err)
	}
}

func TestAServerOverHTTPGetsItsHeadersAndNobodyElseDoes(t *testing.T) {
	var elsewhere []string
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		elsewhere = append(elsewhere, r.Header.Get("Authorization"))
	}))
	defer other.Close()
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server() }, nil)
	real := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer t" {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	defer real.Close()
	s := connect(t, mcp.Options{URL: real.URL, Headers: map[string]string{"Authorization": "Bearer t"}})
	defer s.Close() // while the server is there
	if r, err := call(t.Context(), t, s, "my_server_echo", `{"text":"hi"}`); err != nil || r.Content != "you said hi" {
		t.Errorf("%v %v", r, err)
	}
	if _, err := mcp.Connect(t.Context(), "x", mcp.Options{URL: real.URL}); err == nil || strings.Contains(err.Error(), "Bearer") {
		t.Errorf("without a token: %v", err)
	}
	moved := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer moved.Close()
	if _, err := mcp.Connect(t.Context(), "x", mcp.Options{URL: moved.URL, Headers: map[string]string{"Authorization": "Bearer t"}, Start: 5 * time.Second}); err == nil || len(elsewhere) > 0 {
		t.Errorf("a redirect was followed: %v %v", err, elsewhere)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

// TestAnAnswerThatDoesNotComeIsNoRefusal: the tool has run, and its answer was lost on the way.
func TestAnAnswerThatDoesNotComeIsNoRefusal(t *testing.T) {
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server() }, nil)
	for name, lose := range map[string]func(w http.ResponseWriter){
		"a gateway": func(w http.ResponseWriter) { http.Error(w, "too slow", http.StatusGatewayTimeout) },
		"a server":  func(w http.ResponseWriter) { http.Error(w, "broken", http.StatusInternalServerError) },
		"a cut": func(w http.ResponseWriter) {
			if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
				_ = c.Close() // that is all it is for
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				r.Body = io.NopCloser(bytes.NewReader(body))
				if bytes.Contains(body, []byte(`"tools/call"`)) {
					handler.ServeHTTP(httptest.NewRecorder(), r)
					lose(w)
					return
				}
				handler.ServeHTTP(w, r)
			}))
			defer srv.Close()
			s := connect(t, mcp.Options{URL: srv.URL})
			defer s.Close()
			_, err := call(t.Context(), t, s, "my_server_get_sum", `{"text":""}`)
			if !unknown(err) {
				t.Errorf("%v", err)
			}
			if _, err := call(t.Context(), t, s, "my_server_echo", `{"text":""}`); code(err) != tools.CodeInterrupted || unknown(err) {
				t.Errorf("a call that only reads: %v", err)
			}
		})
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

func TestAServerThatCannotBeUsedSaysWhy(t *testing.T) {
	for name, o := range map[string]mcp.Options{
		"no program":  {Command: []string{"/does/not/exist"}},
		"it ends":     {Command: []string{"true"}},
		"it is mute":  {Command: []string{"sleep", "1000"}, Start: 300 * time.Millisecond},
		"no address":  {URL: "http://127.0.0.1:1/"},
		"neither":     {},
		"both":        {Command: []string{"true"}, URL: "http://127.0.0.1:1/"},
		"it says hoo": {Command: []string{"sh", "-c", "echo hoo; cat >/dev/null"}, Start: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := mcp.Connect(t.Context(), "srv", o)
			if err == nil || s != nil || !strings.HasPrefix(err.Error(), "MCP server srv: ") {
				t.Errorf("%v %v", s, err)
			}
		})
	}
}

func TestNothingOfAServerRunsOnAfterItsEnd(t *testing.T) {
	s := connect(t, mcp.Options{})
	r, err := call(t.Context(), t, s, "my_server_spawn", `{"text":""}`)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := call(t.Context(), t, s, "my_server_echo", `{"text":""}`); code(err) != tools.CodeNetworkError {
		t.Errorf("%v", err)
	}
	for end := time.Now().Add(time.Minute); alive(r.Content); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("process %s runs on", r.Content)
		}
	}
}

// alive says whether a process is there and no mere entry of one that nobody has waited for.
func alive(pid string) bool {
	f, err := os.Open("/proc/" + pid + "/status")
	if err != nil {
		return false
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		if state, ok := strings.CutPrefix(in.Text(), "State:"); ok {
			return !strings.Contains(state, "Z")
		}
	}
	return false
}
