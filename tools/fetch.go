package tools

import (
	"compress/gzip"
	"context"
	"crypto/x509"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

//go:embed fetch.md
var fetchDoc string

// Bounds of a fetch.
const (
	fetchTimeout    = 30 * time.Second
	maxFetchTimeout = 120 * time.Second
	fetchBytes      = 1 << 20  // of the decoded body
	maxFetchBytes   = 10 << 20 // the same, when it is asked for
	maxFetchURL     = 8192     // bytes
	maxRedirects    = 5
	maxFetchHeaders = 256 << 10 // bytes of an answer's headers
)

// Fetch is the tool that gets a text from the web. It reaches public addresses only, and those of Context.Reach.
func Fetch() Tool { return newFetch(nil, nil) }

// newFetch makes the tool with a resolver and authorities of its own; nil: the system's.
func newFetch(resolver *net.Resolver, roots *x509.CertPool) *fetchTool {
	return &fetchTool{resolver: resolver, roots: roots, spec: &Spec{
		Name: "fetch", Description: fetchDoc, Effect: messages.Effect_PURE, NoWorkspace: true,
		Timeout: maxFetchTimeout + 15*time.Second, // its own timeout comes first
		Schema: json.RawMessage(`{
"type":"object","additionalProperties":false,"required":["url"],"properties":{
"url":{"type":"string","minLength":1,"maxLength":8192,"description":"Address, http or https."},
"format":{"type":"string","enum":["markdown","text","html"],"description":"How HTML is shown: as Markdown (default), as plain text, or as it came."},
"max_bytes":{"type":"integer","minimum":1,"maximum":10485760,"description":"Most bytes that are read (default 1048576)."},
"timeout_ms":{"type":"integer","minimum":1,"maximum":120000,"description":"Milliseconds after which it is given up (default 30000)."},
` + workspaceArg + `}}`),
	}}
}

type fetchTool struct {
	spec     *Spec
	resolver *net.Resolver
	roots    *x509.CertPool
}

type fetchArgs struct {
	URL       string `json:"url"`
	Format    string `json:"format"`
	MaxBytes  int64  `json:"max_bytes"`
	TimeoutMS int64  `json:"timeout_ms"`
	Workspace string `json:"workspace_id"`
}

// Spec implements Tool.
func (t *fetchTool) Spec() *Spec { return t.spec }

// errFetchTimeout tells the tool's own timeout from the call's end.
var errFetchTimeout = errors.New("the fetch took too long")

// Run implements Tool.
func (t *fetchTool) Run(tc *Context, args json.RawMessage) (*Result, error) {
	var a fetchArgs
	if err := Decode(t.spec, args, &a); err != nil {
		return nil, err
	}
	timeout, most := fetchTimeout, int64(fetchBytes)
	if a.TimeoutMS > 0 {
		timeout = time.Duration(a.TimeoutMS) * time.Millisecond
	}
	if a.MaxBytes > 0 {
		most = a.MaxBytes
	}
	parent := tc.Signal
	if parent == nil {
		parent = context.Background()
	}
	ctx, cancel := context.WithTimeoutCause(parent, timeout, errFetchTimeout)
	defer cancel()
	f := &fetching{tc: tc, net: t.dialer(tc), most: most, format: a.Format}
	defer f.close()
	res, err := f.get(ctx, a.URL)
	var expected *Error
	switch {
	case err == nil, errors.As(err, &expected):
		return res, err
	case errors.Is(context.Cause(ctx), errFetchTimeout):
		return nil, Errorf(CodeTimeout, "Fetch timed out after %d ms: %s", timeout.Milliseconds(), cleanName(a.URL))
	case ctx.Err() != nil:
		return nil, stopped(ctx.Err())
	}
	return nil, fetchFailure(a.URL, err)
}

func (t *fetchTool) dialer(tc *Context) *fetchNet {
	n := &fetchNet{reach: tc.Reach, resolver: t.resolver}
	if n.resolver == nil {
		n.resolver = net.DefaultResolver
	}
	n.transport = n.newTransport(t.roots)
	return n
}

// fetchFailure words what went wrong on the way.
func fetchFailure(address string, err error) *Error {
	if blocked := new(blockedError); errors.As(err, &blocked) {
		return denyFetch(address, blocked.Error())
	}
	if d := new(net.DNSError); errors.As(err, &d) {
		err = errors.New(d.Err) // without the address of the name server
	}
	return Errorf(CodeNetworkError, "Cannot fetch %s: %s", cleanName(address), cleanName(err.Error())).With("url", cleanName(address))
}

func denyFetch(address, why string) *Error {
	return Errorf(CodeNetworkDenied, "Access denied: %s: %s", cleanName(address), why).With("url", cleanName(address))
}

// fetching is one call under way.
type fetching struct {
	tc     *Context
	net    *fetchNet
	most   int64
	format string
	hops   int
	start  time.Time
}

func (f *fetching) close() { f.net.transport.CloseIdleConnections() }

// get follows redirects on the same host. What the policy decided about was this host: another one is the model's to
// ask for, so that it is decided about in turn.
func (f *fetching) get(ctx context.Context, address string) (*Result, error) {
	f.start = time.Now()
	at, err := f.net.parse(address)
	if err != nil {
		return nil, err
	}
	for ; ; f.hops++ {
		resp, err := f.ask(ctx, at)
		if err != nil {
			return nil, err
		}
		next, err := redirect(resp, at)
		if err == nil && next == nil {
			res, err := f.read(resp, at)
			resp.Body.Close()
			return res, err
		}
		resp.Body.Close()
		if err != nil {
			return nil, err
		}
		to, err := f.net.parse(next.String())
		if err != nil {
			return nil, err
		}
		switch {
		case !strings.EqualFold(to.Hostname(), at.Hostname()), at.Scheme == "https" && to.Scheme == "http":
			return f.elsewhere(ctx, resp, to)
		case f.hops == maxRedirects:
			return nil, Errorf(CodeNetworkError, "Cannot fetch %s: more than %d redirects", cleanName(address), maxRedirects).With("url", cleanName(to.String()))
		}
		at = to
	}
}

func (f *fetching) ask(ctx context.Context, at *url.URL) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, refuse("argument \"url\" is no address: %s", cleanName(err.Error()))
	}
	req.Header.Set("User-Agent", "troupe")
	req.Header.Set("Accept", "text/markdown, text/html;q=0.9, text/plain;q=0.9, */*;q=0.5")
	req.Header.Set("Accept-Encoding", "gzip")
	return f.net.transport.RoundTrip(req)
}

// redirect is where an answer sends its reader; nil: nowhere.
func redirect(resp *http.Response, at *url.URL) (*url.URL, error) {
	location := resp.Header.Get("Location")
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	default:
		return nil, nil //nolint:nilnil // no redirect is no failure
	}
	if location == "" {
		return nil, nil //nolint:nilnil // the same
	}
	next, err := at.Parse(location)
	if err != nil || len(location) > maxFetchURL {
		return nil, Errorf(CodeNetworkError, "Cannot fetch %s: it redirects to what is no address", cleanName(at.String()))
	}
	return next, nil
}

// elsewhere reports a redirect that is not followed. One that leads to where no call may go is refused at once.
func (f *fetching) elsewhere(ctx context.Context, resp *http.Response, to *url.URL) (*Result, error) {
	if err := f.net.check(ctx, to); err != nil {
		return nil, err
	}
	return &Result{
		Content: fmt.Sprintf("[%s: it redirects to %s, which was not followed. Call fetch with that address if it is wanted.]", resp.Status, cleanName(to.String())),
		Meta:    f.meta(resp, resp.Request.URL, 0, map[string]any{"redirect": cleanName(to.String())}),
	}, nil
}

func (f *fetching) meta(resp *http.Response, at *url.URL, n int, more map[string]any) map[string]any {
	meta := map[string]any{
		"url": cleanName(at.String()), "status": resp.StatusCode, "content_type": cleanName(resp.Header.Get("Content-Type")),
		"bytes": n, "redirects": f.hops, "duration_ms": time.Since(f.start).Milliseconds(),
	}
	for k, v := range more {
		meta[k] = v
	}
	return meta
}

// read takes what it may of a body and makes a text of it. The bound is on what is unpacked, not on what travels.
func (f *fetching) read(resp *http.Response, at *url.URL) (*Result, error) {
	body, err := unpacked(resp)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(body, f.most+1))
	if err != nil && len(data) <= int(f.most) {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	partial := int64(len(data)) > f.most
	if partial {
		data = data[:f.most]
	}
	text, converted, ok := readable(data, resp.Header.Get("Content-Type"), f.format, partial)
	if !ok {
		return nil, Errorf(CodeNotText, "Cannot read %s: it is no text but %s", cleanName(at.String()), typeName(resp)).
			With("url", cleanName(at.String())).With("size", len(data))
	}
	text = f.tc.clean(printable([]byte(text)))
	content, cut := firstPart(text)
	var notes []string
	if resp.StatusCode >= 300 || resp.StatusCode < 200 {
		content = fmt.Sprintf("[%s]\n%s", cleanName(resp.Status), content)
	}
	if cut {
		notes = append(notes, fmt.Sprintf("... [%d of %d bytes shown] ...", len(content), len(text)))
		if note := spill(f.tc.Home, f.tc.ExecID, text); note != "" {
			notes = append(notes, note)
		}
	}
	if partial {
		notes = append(notes, fmt.Sprintf("[only the first %d bytes were read; a larger max_bytes reads more]", f.most))
	}
	if !converted {
		notes = append(notes, "[shown as it came: its HTML could not be converted]")
	}
	if text == "" {
		notes = append(notes, "(nothing in it)")
	}
	if content != "" && !strings.HasSuffix(content, "\n") && len(notes) > 0 {
		content += "\n"
	}
	return &Result{
		Content: content + strings.Join(notes, "\n"), Truncated: cut || partial,
		Meta: f.meta(resp, at, len(data), nil),
	}, nil
}

func typeName(resp *http.Response) string {
	if t := resp.Header.Get("Content-Type"); t != "" {
		return cleanName(t)
	}
	return "of no known type"
}

// unpacked undoes the only packing that was asked for.
func unpacked(resp *http.Response) (io.Reader, error) {
	switch packing := strings.ToLower(strings.TrimSpace(resp.Header.Get("Content-Encoding"))); packing {
	case "", "identity":
		return resp.Body, nil
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(resp.Body)
		if err != nil {
			return nil, fmt.Errorf("unpack the answer: %w", err)
		}
		return z, nil
	default:
		return nil, Errorf(CodeNetworkError, "Cannot fetch %s: it is packed in a way that was not asked for (%s)", cleanName(resp.Request.URL.String()), cleanName(packing))
	}
}

// firstPart is as much of a text as a result holds, cut at the end of a line where one is near.
func firstPart(text string) (string, bool) {
	if len(text) <= maxResultBytes {
		return text, false
	}
	head := strings.ToValidUTF8(text[:maxResultBytes], "")
	if i := strings.LastIndexByte(head, '\n'); i > len(head)-4096 {
		head = head[:i+1]
	}
	return head, true
}
