package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"path/filepath"

	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
)

// prepare reads what the configuration says about access.
func (s *server) prepare() error {
	var err error
	if s.tls, err = s.serverTLS(); err != nil {
		return err
	}
	if s.fixed, err = configured(s.loaded); err != nil {
		return err
	}
	for _, root := range s.loaded.Config.Server.Roots {
		real, err := filepath.EvalSymlinks(root)
		if err != nil {
			return &exitError{code: exitConfig, what: fmt.Sprintf("%s: %v", s.setting("server.roots"), err), hint: "make the folder, or leave it out", err: err}
		}
		s.roots = append(s.roots, filepath.ToSlash(real))
	}
	return nil
}

// open says whether nobody needs a token: until the first one is made. One that was revoked or has expired does not open the server again.
func (s *server) open() bool {
	return len(s.fixed) == 0 && len(s.house.rt.Tokens()) == 0 && s.house.rt.TokensLost() == nil
}

// find gives the token of a hash that counts now.
func (s *server) find(ctx context.Context, hash [sha256.Size]byte) (*messages.Token, error) {
	if t := s.fixed[hash]; t != nil {
		return t, nil
	}
	return ask[*messages.Token](ctx, s.house, &messages.FindToken{Hash: hash[:]})
}

// public are the options of who comes over the network.
func (s *server) public() gateway.Options {
	o := s.options()
	o.Logger, o.Version, o.Roots = s.log, readVersion().Version, s.roots
	o.Authenticate = (&gateway.Bearer{Find: s.find, Open: s.open}).Authenticate
	if onLoopback(s.loaded.Config.Server.Listen) {
		o.Hosts = gateway.LoopbackHosts
	}
	return o
}
