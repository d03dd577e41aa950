package gitclone

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

const (
	maxHops    = 3
	maxHeaders = 64 << 10
	probeTime  = 30 * time.Second
)

// find looks the repository up: where its host is, whether that may be reached, and which of its usual spellings the server knows. git
// gets the addresses that were looked at, and follows no redirect any more.
func (w *cloning) find(ctx context.Context) error {
	port := w.addr.Port
	if port == 0 {
		port = 443
	}
	addrs, err := w.o.Lookup(ctx, w.addr.Host)
	if err != nil || len(addrs) == 0 {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return messages.Fail(messages.CodeNetwork, fmt.Sprintf("cannot find the host %s", w.addr.Host), "check the address, and the network")
	}
	var usable []string
	for _, a := range addrs {
		if err := tools.Reachable(w.o.Reach, a); err != nil {
			return messages.Fail(messages.CodeNetworkDenied, fmt.Sprintf("%s: %v", w.addr.Host, err), "sandbox.fetch names address ranges that may be reached all the same")
		}
		usable = append(usable, bracketed(a.WithZone("").Unmap().String()))
	}
	w.pins = []string{fmt.Sprintf("%s:%d:%s", w.addr.Host, port, strings.Join(usable, ","))}
	client, err := w.client(usable, port)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	host := w.addr.Host
	if w.addr.Port != 0 {
		host += ":" + strconv.Itoa(port)
	}
	for _, name := range []string{w.addr.Path + ".git", w.addr.Path} {
		found, err := w.probe(ctx, client, (&url.URL{Scheme: "https", Host: host, Path: "/" + name}).String())
		if err != nil || found != "" {
			w.url = found
			return err
		}
	}
	return messages.Fail(messages.CodeNotFound, fmt.Sprintf("there is no repository git:%s/%s", host, w.addr.Path), "check its spelling; private repositories are not cloned")
}

func bracketed(addr string) string {
	if strings.Contains(addr, ":") {
		return "[" + addr + "]"
	}
	return addr
}

// client connects to the addresses that were looked at, whatever the name means by then.
func (w *cloning) client(addrs []string, port int) (*http.Client, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if w.o.RootCAs != "" {
		pem, err := os.ReadFile(w.o.RootCAs)
		if err == nil {
			err = os.WriteFile(filepath.Join(w.part, caFile), pem, 0o600) // where git may read it
		}
		if err != nil {
			return nil, messages.Fail(messages.CodeUnavailable, fmt.Sprintf("read the certificates that are believed: %v", err), "")
		}
		conf.RootCAs = x509.NewCertPool()
		conf.RootCAs.AppendCertsFromPEM(pem)
	}
	dial := func(ctx context.Context, network, _ string) (conn net.Conn, err error) {
		d := net.Dialer{Timeout: 10 * time.Second}
		for _, a := range addrs {
			if conn, err = d.DialContext(ctx, network, a+":"+strconv.Itoa(port)); err == nil {
				return conn, nil
			}
		}
		return nil, err
	}
	return &http.Client{
		Timeout: probeTime,
		Transport: &http.Transport{
			DialContext: dial, DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeaders, TLSClientConfig: conf, TLSHandshakeTimeout: 10 * time.Second,
		},
		CheckRedirect: func(next *http.Request, past []*http.Request) error {
			if len(past) > maxHops || next.URL.Scheme != "https" || next.URL.Host != past[0].URL.Host || next.URL.User != nil {
				return &strayError{next.URL.Redacted()}
			}
			return nil
		},
	}, nil
}

// strayError is a redirect that is not followed.
type strayError struct{ to string }

func (e *strayError) Error() string { return "it leads to " + e.to }

// probe asks whether there is a repository at an address. "" means that there is none.
func (w *cloning) probe(ctx context.Context, client *http.Client, address string) (string, error) {
	const ask = "/info/refs"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+ask+"?service=git-upload-pack", nil)
	if err != nil {
		return "", fmt.Errorf("ask for %s: %w", address, err)
	}
	req.Header.Set("User-Agent", "git/2 (troupe)")
	req.Header.Set("Git-Protocol", "version=2")
	res, err := client.Do(req)
	var stray *strayError
	switch {
	case errors.As(err, &stray):
		return "", messages.Fail(messages.CodeNetworkDenied, fmt.Sprintf("%s is not there: %v", address, stray), "attach that address, if it is the one you mean")
	case err != nil && ctx.Err() != nil:
		return "", ctx.Err()
	case err != nil:
		var why *url.Error
		if errors.As(err, &why) {
			err = why.Err
		}
		return "", messages.Fail(messages.CodeNetwork, fmt.Sprintf("cannot reach %s: %v", w.addr.Host, err), "")
	}
	_ = res.Body.Close()
	switch {
	case res.StatusCode == http.StatusUnauthorized, res.StatusCode == http.StatusForbidden:
		return "", w.private()
	case res.StatusCode >= 500, res.StatusCode == http.StatusTooManyRequests:
		return "", messages.Fail(messages.CodeNetwork, fmt.Sprintf("%s answers %s", w.addr.Host, res.Status), "try again later")
	case res.StatusCode != http.StatusOK, !strings.HasPrefix(res.Header.Get("Content-Type"), "application/x-git-upload-pack-advertisement"):
		return "", nil
	}
	at := *res.Request.URL
	at.RawQuery = ""
	return strings.TrimSuffix(at.String(), ask), nil
}

func (w *cloning) private() error {
	return messages.Fail(messages.CodeDenied, fmt.Sprintf("the repository git:%s/%s is private, or does not exist", w.addr.Host, w.addr.Path),
		"only public repositories are cloned: clone it yourself, and attach the folder")
}
