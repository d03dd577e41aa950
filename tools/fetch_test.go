package tools

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

func local() []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")} }

// fetchOf calls fetch and returns its envelope.
func fetchOf(t *testing.T, tool *fetchTool, tc *Context, args map[string]any) *Envelope {
	t.Helper()
	raw, err := json.Marshal(args)
	noError(t, err)
	res, err := tool.Run(tc, raw)
	if e := new(Error); err != nil && !errors.As(err, &e) {
		t.Errorf("%v: a defect instead of a refusal: %v", args, err)
	}
	return NewEnvelope("c", "fetch", res, err)
}

// site serves pages on this machine and counts what is asked of it.
type site struct {
	*httptest.Server
	asked atomic.Int64
}

func newSite(t *testing.T, pages map[string]http.HandlerFunc) *site {
	t.Helper()
	s := &site{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		page := pages[r.URL.Path]
		if page == nil {
			http.NotFound(w, r)
			return
		}
		page(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func says(kind, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if kind != "" {
			w.Header().Set("Content-Type", kind)
		}
		_, _ = io.WriteString(w, body) // the reader may have had enough
	}
}

func sends(code int, to string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", to)
		w.WriteHeader(code)
	}
}

// names is a name server on this machine that gives the next of its answers each time it is asked for an IPv4 address.
func names(t *testing.T, answers map[string][]string) (*net.Resolver, *atomic.Int64) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	noError(t, err)
	var asked atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if reply := resolve(buf[:n], answers, &asked); reply != nil {
				_, _ = conn.WriteTo(reply, from)
			}
		}
	}()
	t.Cleanup(func() { conn.Close(); <-done })
	return &net.Resolver{PreferGo: true, StrictErrors: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}, &asked
}

func resolve(query []byte, answers map[string][]string, asked *atomic.Int64) []byte {
	var m dnsmessage.Message
	if m.Unpack(query) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	m.Response, m.Authoritative, m.Additionals = true, true, nil
	list := answers[strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))]
	switch {
	case list == nil:
		m.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeA:
		addr := netip.MustParseAddr(list[min(int(asked.Add(1)), len(list))-1])
		m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class}, Body: &dnsmessage.AResource{A: addr.As4()}}}
	}
	reply, err := m.Pack()
	if err != nil {
		return nil
	}
	return reply
}

func TestFetchGivesTheTextOfAPage(t *testing.T) {
	page := `<html><head><title>no</title><style>no</style></head><body><h1>Title</h1><script>no()</script><p>Some <b>bold</b>
 text and a <a href="/x">link</a>.</p><ul><li>one</li><li>two</li></ul><table><tr><th colspan=1000000000>a</th></tr><tr><td>b</td></tr></table></body></html>`
	s := newSite(t, map[string]http.HandlerFunc{
		"/page": says("text/html; charset=utf-8", page), "/json": says("application/json", `{"a": "ä"}`), "/none": says("text/plain", ""),
		"/latin": says("text/html; charset=iso-8859-1", "<p>caf\xe9</p>"), "/image": says("image/png", "\x89PNG\r\n\x1a\n\x00\xff"), "/nul": says("text/plain", "a\x00b"),
		"/escape": says("text/plain", "a\x1b]52;c;ZXZpbA==\x07b"), "/unnamed": says("application/octet-stream", "plain after all"),
		"/bare": func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Cookie") != "" || r.Header.Get("Referer") != "" || r.Method != http.MethodGet {
				t.Errorf("sent: %v", r.Header)
			}
			w.Header().Set("Set-Cookie", "a=b")
			w.Header()["Content-Type"] = nil
			_, _ = io.WriteString(w, "<!DOCTYPE html><p>hello</p>")
		},
		"/deep": says("text/html", strings.Repeat("<div>", 100_000)+"x"), "/gone": says("text/html", ""), "/old": sends(301, "/page"),
	})
	for path, want := range map[string][]string{ // format, content
		"/page":    {"markdown", "# Title\n\nSome **bold** text and a [link](/x).\n\n- one\n- two\n\n| a |\n|---|\n| b |"},
		"/page?":   {"text", "Title\n\nSome bold text and a link.\n\none\ntwo\n\na\nb"},
		"/page?h":  {"html", page},
		"/json":    {"markdown", `{"a": "ä"}`},
		"/none":    {"markdown", "(nothing in it)"},
		"/latin":   {"markdown", "café"},
		"/escape":  {"markdown", "a␛]52;c;ZXZpbA==␇b"},
		"/unnamed": {"markdown", "plain after all"},
		"/bare":    {"markdown", "hello"},
		"/old":     {"text", "Title\n\nSome bold text and a link.\n\none\ntwo\n\na\nb"},
		"/missing": {"markdown", "[404 Not Found]\n404 page not found\n"},
	} {
		e := fetchOf(t, newFetch(nil, nil), &Context{Reach: local()}, map[string]any{"url": s.URL + path, "format": want[0]})
		if !e.OK || e.Content != want[1] {
			t.Errorf("%s as %s: %+v\nwant %q", path, want[0], e, want[1])
		}
	}
	for _, path := range []string{"/image", "/nul"} {
		if e := fetchOf(t, newFetch(nil, nil), &Context{Reach: local()}, map[string]any{"url": s.URL + path}); e.ErrorCode != CodeNotText {
			t.Errorf("%s: %+v", path, e)
		}
	}
	if e := fetchOf(t, newFetch(nil, nil), &Context{Reach: local()}, map[string]any{"url": s.URL + "/deep"}); !e.OK || !strings.Contains(e.Content, "[shown as it came") {
		t.Errorf("what is nested too deeply to be read: %.100q, %s", e.Content, e.ErrorCode)
	}
}

func TestFetchRefusesEveryAddressThatIsNotPublic(t *testing.T) {
	s := newSite(t, nil)
	u, err := url.Parse(s.URL)
	noError(t, err)
	for _, host := range []string{
		"127.0.0.1", "127.1", "2130706433", "0177.0.0.1", "0x7f.1", "0x7f000001", "017700000001", "127.0.0.1.", "0", "0.0.0.0", "[::1]", "[::]",
		"[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[64:ff9b:1::7f00:1]", "[2002:7f00:1::]", "[fd00:ec2::254]", "[fe80::1]", "[fe80::1%25lo]",
		"[ff02::1]", "[fec0::1]", "10.0.0.1", "100.64.0.1", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.168.1.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255",
		"localhost", "LOCALHOST", "localhost.", "foo.localhost", "localhost.localdomain", "1.2.3.4.5", "a_b.0x7f",
		"127%2e0.0.1", "localhost%00.example", "exa mple",
	} {
		for _, scheme := range []string{"http", "https"} {
			address := scheme + "://" + host + ":" + u.Port() + "/"
			e := fetchOf(t, newFetch(nil, nil), &Context{}, map[string]any{"url": address})
			if e.ErrorCode != CodeNetworkDenied && !(strings.ContainsAny(host, "% ") && e.ErrorCode == CodeInvalidArguments) {
				t.Errorf("%s: %+v", address, e)
			}
		}
	}
	for _, address := range []string{"gopher://127.0.0.1:6379/_x", "file:///etc/passwd", "ftp://example.org/", "javascript:alert(1)", "data:text/plain,x", "HTTPX://example.org"} {
		if e := fetchOf(t, newFetch(nil, nil), &Context{}, map[string]any{"url": address}); e.ErrorCode != CodeNetworkDenied {
			t.Errorf("%s: %+v", address, e)
		}
	}
	for _, address := range []string{"", "example.org", "//example.org/", "http://", "http:///x", "http://user:pass@example.org/", "http://exämple.org/", "http://[::1", "http:example.org", "http://example.org:x/", "http://a/\x00"} {
		if e := fetchOf(t, newFetch(nil, nil), &Context{Reach: local()}, map[string]any{"url": address}); e.ErrorCode != CodeInvalidArguments {
			t.Errorf("%q: %+v", address, e)
		}
	}
	if n := s.asked.Load(); n != 0 {
		t.Errorf("%d requests came through", n)
	}
	if e := fetchOf(t, newFetch(nil, nil), &Context{Reach: local()}, map[string]any{"url": "http://[::ffff:127.0.0.1]:" + u.Port() + "/"}); !e.OK || s.asked.Load() != 1 {
		t.Errorf("what the configuration allows: %+v", e)
	}
	for host, code := range map[string]string{"2130706433": CodeNetworkDenied, "10.0.0.1": CodeNetworkDenied, "127.0.0.2": CodeNetworkDenied} {
		if e := fetchOf(t, newFetch(nil, nil), &Context{Reach: local()}, map[string]any{"url": "http://" + host + "/"}); e.ErrorCode != code {
			t.Errorf("%s with another address allowed: %+v", host, e)
		}
	}
}

func TestAnAddressIsCheckedWhenItIsDialledAndNotBefore(t *testing.T) {
	s := newSite(t, map[string]http.HandlerFunc{"/": says("text/plain", "inside")})
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	noError(t, err)
	resolver, asked := names(t, map[string][]string{"inside.test": {"127.0.0.1"}, "turns.test": {"127.0.0.1", "127.0.0.9"}, "mixed.test": {"10.9.8.7"}})
	for _, host := range []string{"inside.test", "INSIDE.test", "mixed.test"} {
		if e := fetchOf(t, newFetch(resolver, nil), &Context{}, map[string]any{"url": "http://" + host + ":" + port}); e.ErrorCode != CodeNetworkDenied {
			t.Errorf("%s: %+v", host, e)
		}
	}
	if asked.Load() == 0 || s.asked.Load() != 0 {
		t.Errorf("%d names were looked up, %d requests came through", asked.Load(), s.asked.Load())
	}
	// The first answer is allowed. Whoever looks the name up again to connect is led elsewhere: that is refused, too.
	asked.Store(0)
	if e := fetchOf(t, newFetch(resolver, nil), &Context{Reach: local()}, map[string]any{"url": "http://turns.test:" + port}); e.Content != "inside" {
		t.Errorf("what was looked up is not what was dialled: %+v", e)
	}
	if e := fetchOf(t, newFetch(resolver, nil), &Context{Reach: local()}, map[string]any{"url": "http://turns.test:" + port}); e.ErrorCode != CodeNetworkDenied || !strings.Contains(e.Content, "127.0.0.9") {
		t.Errorf("the second answer: %+v", e)
	}
	if e := fetchOf(t, newFetch(resolver, nil), &Context{}, map[string]any{"url": "http://nowhere.test/"}); e.ErrorCode != CodeNetworkError || !strings.HasSuffix(e.Content, "no such host") {
		t.Errorf("a name that is none: %+v", e)
	}
}

func TestRedirectsAreBoundedAndLeadToNoOtherHost(t *testing.T) {
	s := newSite(t, nil)
	resolver, _ := names(t, map[string][]string{"public.test": {"127.0.0.1"}, "other.test": {"127.0.0.1"}, "evil.test": {"10.0.0.1"}})
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	noError(t, err)
	second := newSite(t, map[string]http.HandlerFunc{
		"/loopback": sends(302, "http://127.0.0.2/"), "/number": sends(302, "http://2130706433/"),
		"/private": sends(302, "http://evil.test/"), "/scheme": sends(302, "file:///etc/passwd"), "/other": sends(308, "http://other.test:"+port+"/secret"),
		"/loop": sends(302, "/loop"), "/one": sends(303, "two?x#y"), "/two": says("text/plain", "arrived"), "/nowhere": sends(302, ""), "/broken": sends(302, "http://["),
		"/missing": sends(302, "http://nothing.test/"),
	})
	base := "http://public.test" + strings.TrimPrefix(second.URL, "http://127.0.0.1")
	for path, want := range map[string]string{
		"/loopback": CodeNetworkDenied, "/number": CodeNetworkDenied, "/private": CodeNetworkDenied, "/scheme": CodeNetworkDenied,
		"/other": "", "/loop": CodeNetworkError, "/one": "", "/nowhere": "", "/broken": CodeNetworkError, "/missing": "",
	} {
		if e := fetchOf(t, newFetch(resolver, nil), &Context{Reach: local()}, map[string]any{"url": base + path}); e.ErrorCode != want {
			t.Errorf("%s: %+v, want %q", path, e, want)
		}
	}
	if n := second.asked.Load(); n < maxRedirects {
		t.Errorf("%d requests", n)
	}
	e := fetchOf(t, newFetch(resolver, nil), &Context{Reach: local()}, map[string]any{"url": base + "/other"})
	if !strings.Contains(e.Content, "http://other.test:"+port+"/secret") || e.Meta["redirect"] == nil || s.asked.Load() != 0 {
		t.Errorf("a redirect to another host: %+v; %d requests there", e, s.asked.Load())
	}
	if e := fetchOf(t, newFetch(resolver, nil), &Context{Reach: local()}, map[string]any{"url": base + "/one"}); e.Content != "arrived" || e.Meta["redirects"] != 1 {
		t.Errorf("a redirect on the same host: %+v", e)
	}
}

func TestBodiesAreBoundedInSizeAndTime(t *testing.T) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	for range 64 {
		_, err := z.Write(bytes.Repeat([]byte("bomb"), 1<<18))
		noError(t, err)
	}
	noError(t, z.Close())
	quit := make(chan struct{})
	s := newSite(t, map[string]http.HandlerFunc{
		"/bomb": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Header().Set("Content-Type", "text/plain")
			_, _ = w.Write(bomb.Bytes())
		},
		"/endless": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			for {
				if _, err := io.WriteString(w, "line after line\n"); err != nil {
					return
				}
			}
		},
		"/slow": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "a beginning")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
			case <-quit:
			}
		},
		"/silent": func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
			case <-quit:
			}
		},
		"/headers": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", 1<<20)) },
		"/packed":  func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Encoding", "br") },
		"/cut": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "short")
		},
		"/long": says("text/plain; charset=utf-8", strings.Repeat("a line of a text ä\n", 10_000)),
	})
	defer close(quit)
	dir := t.TempDir()
	home, err := workspace.Open(workspace.Options{Dir: filepath.Join(dir, "home"), Create: true, Trust: messages.Trust_FULL})
	noError(t, err)
	defer home.Close()
	call := func(path string, more map[string]any) *Envelope {
		args := map[string]any{"url": s.URL + path}
		for k, v := range more {
			args[k] = v
		}
		return fetchOf(t, newFetch(nil, nil), &Context{Reach: local(), Home: home, ExecID: "exe_1"}, args)
	}
	for _, path := range []string{"/bomb", "/endless"} {
		e := call(path, map[string]any{"max_bytes": 1000})
		if !e.OK || !e.Truncated || e.Meta["bytes"] != 1000 || len(e.Content) > 1200 || !strings.Contains(e.Content, "only the first 1000 bytes") {
			t.Errorf("%s: %+v", path, e)
		}
		if e := call(path, nil); !e.OK || !e.Truncated || e.Meta["bytes"] != fetchBytes || len(e.Content) > maxResultBytes+500 {
			t.Errorf("%s: %d bytes shown, %v", path, len(e.Content), e.Meta)
		}
	}
	for _, path := range []string{"/slow", "/silent"} {
		if e := call(path, map[string]any{"timeout_ms": 300}); e.ErrorCode != CodeTimeout || !strings.Contains(e.Content, "300 ms") {
			t.Errorf("%s: %+v", path, e)
		}
	}
	for _, path := range []string{"/headers", "/packed", "/cut"} {
		if e := call(path, nil); e.ErrorCode != CodeNetworkError {
			t.Errorf("%s: %+v", path, e)
		}
	}
	e := call("/long", nil)
	whole, err := os.ReadFile(filepath.Join(dir, "home", "spill", "exe_1"))
	if err != nil || len(whole) != 200_000 || !e.Truncated || !strings.Contains(e.Content, `"spill/exe_1"`) || len(e.Content) > maxResultBytes+500 {
		t.Errorf("%d bytes kept, %v; %d shown", len(whole), err, len(e.Content))
	}
	if e := call("/long", map[string]any{"max_bytes": 38}); !strings.HasPrefix(e.Content, "a line of a text ä\na line of a text \n[") {
		t.Errorf("cut in the middle of a character: %+v", e)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if e := fetchOf(t, newFetch(nil, nil), &Context{Reach: local(), Signal: ctx}, map[string]any{"url": s.URL}); e.ErrorCode != CodeCancelled {
		t.Errorf("%+v", e)
	}
}

func TestFetchObeysNoProxyAndNoUnknownAuthority(t *testing.T) {
	proxy := newSite(t, map[string]http.HandlerFunc{"/": says("text/plain", "by the proxy")})
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(name, proxy.URL)
	}
	s := httptest.NewUnstartedServer(says("text/plain", "by itself"))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	defer s.Close()
	if e := fetchOf(t, newFetch(nil, nil), &Context{Reach: local()}, map[string]any{"url": s.URL}); e.ErrorCode != CodeNetworkError || !strings.Contains(e.Content, "certificate") {
		t.Errorf("%+v", e)
	}
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	if e := fetchOf(t, newFetch(nil, roots), &Context{Reach: local()}, map[string]any{"url": s.URL}); e.Content != "by itself" {
		t.Errorf("%+v", e)
	}
	resolver, _ := names(t, map[string][]string{"public.test": {"127.0.0.1"}})
	plain := newSite(t, map[string]http.HandlerFunc{"/": says("text/plain", "by itself")})
	if e := fetchOf(t, newFetch(resolver, nil), &Context{Reach: local()}, map[string]any{"url": "http://public.test" + strings.TrimPrefix(plain.URL, "http://127.0.0.1")}); e.Content != "by itself" || proxy.asked.Load() != 0 {
		t.Errorf("%+v, %d requests at the proxy", e, proxy.asked.Load())
	}
}

// A page whose conversion would take far more than its length takes no more.
func TestPagesThatBlowUpAreConvertedAsTheyAre(t *testing.T) {
	for what, page := range map[string]string{
		"cells over many columns": strings.Repeat("<table><tr><td colspan=1000000000 rowspan=1000000000>x</td></tr></table>", 100),
		"marks to be escaped":     strings.Repeat("_*[`", 1<<16),
		"quotes in quotes":        strings.Repeat("<blockquote>", 400) + strings.Repeat("<p>a", 1<<15),
		"lists in lists":          strings.Repeat("<ul><li>", 200) + strings.Repeat("<p>a", 1<<15),
		"a wide cell above":       "<table><tr><td>" + strings.Repeat("z", 1<<18) + "</td></tr>" + strings.Repeat("<tr><td>x</td></tr>", 10_000) + "</table>",
	} {
		if out, err := fromHTML(page, false); err != nil || len(out) > 4*len(page) {
			t.Errorf("%s: %d bytes became %d, %v", what, len(page), len(out), err)
		}
	}
}

func TestFetchAttacksEndAsAgreed(t *testing.T) {
	seen := 0
	for _, a := range loadAttacks(t) {
		if a.Category != "fetch" || a.Expect != "deny" {
			continue
		}
		seen++
		var args map[string]any
		noError(t, json.Unmarshal(a.Arguments, &args))
		if before, target, ok := strings.Cut(fmt.Sprint(args["url"]), " -> 302 "); ok {
			resolver, _ := names(t, map[string][]string{"public.test": {"127.0.0.9"}})
			s := newSite(t, map[string]http.HandlerFunc{"/": sends(302, target)})
			s.Listener.Close()
			l, err := net.Listen("tcp", "127.0.0.9:0")
			if err != nil {
				t.Skipf("no second address of this machine: %v", err)
			}
			srv := &http.Server{Handler: s.Config.Handler} //nolint:gosec // it serves one request of this test
			go srv.Serve(l)                                //nolint:errcheck // it ends with the test
			defer srv.Close()
			_, port, err := net.SplitHostPort(l.Addr().String())
			noError(t, err)
			args["url"] = strings.TrimSuffix(before, "/") + ":" + port
			e := fetchOf(t, newFetch(resolver, nil), &Context{Reach: []netip.Prefix{netip.MustParsePrefix("127.0.0.9/32")}}, args)
			if e.ErrorCode != a.Code || s.asked.Load() != 1 {
				t.Errorf("%s %s: %+v after %d requests", a.ID, a.Name, e, s.asked.Load())
			}
			continue
		}
		if e := fetchOf(t, newFetch(nil, nil), &Context{}, args); e.ErrorCode != a.Code {
			t.Errorf("%s %s: %+v", a.ID, a.Name, e)
		}
	}
	if seen < 9 {
		t.Errorf("%d cases, want 9", seen)
	}
}
