package main

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"time"
)

// certificate is that of the server, read anew when its files change. One that cannot be read leaves the one before in use.
type certificate struct {
	cert, key string
	failed    func(error)

	mu     sync.Mutex
	loaded *tls.Certificate
	of     [2]time.Time // when the files were changed that it was read from
	looked time.Time
}

// certificatePoll is how often the files are looked at, at most.
const certificatePoll = time.Second

// serverTLS is nil without a certificate.
func (s *server) serverTLS() (*tls.Config, error) {
	t := s.loaded.Config.Server.TLS
	if t.Cert == "" && t.Key == "" {
		return nil, nil
	}
	c := &certificate{cert: t.Cert, key: t.Key, failed: func(err error) {
		if s.log != nil {
			s.log.Error("the certificate was not read anew: the one before stays in use", "err", err)
		}
	}}
	if _, err := c.get(nil); err != nil {
		return nil, &exitError{code: exitConfig, what: fmt.Sprintf("%s: %v", s.setting("server.tls.cert"), err), hint: "server.tls.cert and server.tls.key are PEM files", err: err}
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get, NextProtos: []string{"http/1.1"}}, nil
}

func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.loaded != nil && time.Since(c.looked) < certificatePoll {
		return c.loaded, nil
	}
	c.looked = time.Now()
	var now [2]time.Time
	for i, name := range []string{c.cert, c.key} {
		if info, err := os.Stat(name); err == nil {
			now[i] = info.ModTime()
		}
	}
	if c.loaded != nil && now == c.of {
		return c.loaded, nil
	}
	read, err := tls.LoadX509KeyPair(c.cert, c.key)
	switch {
	case err == nil:
		c.loaded, c.of = &read, now
	case c.loaded == nil:
		return nil, err
	default:
		c.failed(err)
	}
	return c.loaded, nil
}
