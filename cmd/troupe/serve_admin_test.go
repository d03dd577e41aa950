package main

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/troupe-dev/troupe/client"
)

func TestProfilesAreForThisMachineAndBounded(t *testing.T) {
	s := httptest.NewServer(profiles())
	defer s.Close()
	for _, c := range []struct {
		method, path, host, body string
		status                   int
	}{
		{"GET", "/debug/pprof/", "", "", 200},
		{"GET", "/debug/pprof/goroutine?debug=1", "", "", 200},
		{"GET", "/debug/pprof/profile?seconds=1000000000", "", "", 400},
		{"GET", "/debug/pprof/profile?seconds=-1", "", "", 400},
		{"GET", "/debug/pprof/profile?seconds=x", "", "", 400},
		{"GET", "/debug/pprof/trace?seconds=Inf", "", "", 400},
		{"GET", "/debug/pprof/trace?seconds=NaN", "", "", 400},
		{"GET", "/debug/pprof/heap?seconds=1e300", "", "", 400},
		{"GET", "/debug/pprof/..%2f..%2fetc%2fpasswd", "", "", 404},
		{"GET", "/debug/pprof/%00%0d%0aX-Smuggled:%201", "", "", 404},
		{"GET", "/debug/pprof/", "evil.example", "", 421},
		{"POST", "/debug/pprof/profile", "", "seconds=1000000000", 405},
		{"GET", "/debug/pprof/cmdline", "", "", 404}, // the command line may hold what nobody else should see
		{"GET", "/", "", "", 404},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, s.URL+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = c.host
		res, err := s.Client().Do(req)
		if err != nil {
			t.Fatalf("%s %s: %v", c.method, c.path, err)
		}
		res.Body.Close()
		if res.StatusCode != c.status || res.Header.Get("X-Smuggled") != "" {
			t.Errorf("%s %s for host %q: %s, want %d", c.method, c.path, c.host, res.Status, c.status)
		}
	}
}

func TestAConnectionTooManyIsClosedOnTheAddressAndOnTheSocket(t *testing.T) {
	m := newMachine(t)
	s := m.serve("--config", m.write("few.yaml", "server: {connections: 3}\n"))
	http.DefaultClient.CloseIdleConnections()
	for network, address := range map[string]string{"tcp": strings.TrimPrefix(s.url, "http://"), "unix": client.SocketPath(filepath.Join(m.home, ".local/share/troupe"))} {
		m.eventually(network+": three connections have a place", func() bool { // that of a request before may have to be given back
			n := answered(t, network, address, 5)
			if n > 3 {
				t.Fatalf("%s: %d connections are answered at a time", network, n)
			}
			return n == 3
		})
		m.eventually(network+": places that were given back are given again", func() bool { return answered(t, network, address, 1) == 1 })
	}
}

// answered opens so many connections, one after the other, tells how many of them were answered until one was not, and closes them.
func answered(t *testing.T, network, address string, most int) int {
	t.Helper()
	for open := range most {
		c, err := net.Dial(network, address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if _, err := io.WriteString(c, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			return open
		}
		if n, err := c.Read(make([]byte, 1)); n == 0 {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal("one too many is left waiting")
			}
			return open
		}
	}
	return most
}

// TestMetricsOfTheConventionsAreWhatPromtoolAccepts looks at those that only a server with work behind it has.
func TestMetricsOfTheConventionsAreWhatPromtoolAccepts(t *testing.T) {
	m := newMachine(t)
	s := m.serve()
	sc := m.write("s.yaml", "name: s\nrules: [{steps: [{tool_calls: [{name: create_directory, arguments: {path: made}}]}, {text: done}]}]\n")
	if code, _, stderr := m.run("run", "go", "-C", "a", "-m", "scripted/"+sc, "--trust", "full", "--server", s.url); code != exitDone {
		t.Fatalf("run ended with %d: %s", code, stderr)
	}
	res, err := http.Get(s.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.New(bytes.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "gen_ai_") || strings.HasPrefix(p.Metric, "troupe_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	for _, want := range []string{
		"gen_ai_client_token_usage_count{", "gen_ai_client_operation_duration_seconds_count{", `gen_ai_invoke_agent_duration_seconds_count{gen_ai_agent_name="default"`, `gen_ai_execute_tool_duration_seconds_count{`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s is not there:\n%s", want, text)
		}
	}
	s.signal(syscall.SIGTERM)
	if code, _ := s.wait(); code != 0 {
		t.Errorf("the server ended with %d: %s", code, s.stderr.String())
	}
}
