package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// ErrUnreachable says that no server answers at an address.
var ErrUnreachable = errors.New("the server cannot be reached")

// Server is a server of the network.
type Server struct {
	URL   string // http or https, with no path
	Token string // "": none is sent
	CA    []byte // PEM: authorities of its certificate, besides those of the system; nil: only those
	// Insecure lets a token go out in plain text to a machine that is not this one.
	Insecure bool
}

// Connect reaches a server, and makes sure that it is one: it answers on /livez. The error is ErrUnreachable when it does not. A token goes
// only to this machine, or over https. No proxy is asked. The caller ends the client with Close.
func Connect(ctx context.Context, s Server) (*Client, error) {
	u, err := s.check()
	if err != nil {
		return nil, err
	}
	t := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: helloTime}).DialContext,
		TLSHandshakeTimeout: helloTime, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12},
	}
	if s.CA != nil {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(s.CA) {
			return nil, fmt.Errorf("server %s: there is no certificate in the PEM text of its authority", u)
		}
		t.TLSClientConfig.RootCAs = pool
	}
	c := newClient("the server "+u, u, t)
	c.token = s.Token
	ctx, cancel := context.WithTimeout(ctx, helloTime)
	defer cancel()
	if err := c.alive(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.patience = patience
	return c, nil
}

// check gives the origin of the address.
func (s Server) check() (string, error) {
	u, err := url.Parse(s.URL)
	switch {
	case err != nil:
		return "", fmt.Errorf("server address: %w", err)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return "", fmt.Errorf("server address %q: write for example http://127.0.0.1:7777", s.URL)
	case u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return "", fmt.Errorf("server address %q: write scheme, host and port alone", u.Redacted())
	case s.Token != "" && u.Scheme == "http" && !loopback(u.Hostname()) && !s.Insecure:
		return "", fmt.Errorf("server address %q: a token goes over https alone", s.URL)
	}
	return u.Scheme + "://" + u.Host, nil
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// alive makes sure that somebody answers, whom it tells nothing.
func (c *Client) alive(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.origin+"/livez", http.NoBody)
	if err != nil {
		return fmt.Errorf("make the request: %w", err)
	}
	res, err := c.http.Do(req)
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	defer func() { _ = res.Body.Close() }() // it was read
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 1<<10))
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: %s answers %s: it is no troupe server", ErrUnreachable, c.origin, res.Status)
	}
	return nil
}
