package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/troupe-dev/troupe/client"
	"github.com/troupe-dev/troupe/config"
)

// tokenFile, in the folder of the user's configuration, holds the token for servers. TROUPE_TOKEN goes before it.
const tokenFile = "token"

// maxToken is the most that a file with a token may hold, in bytes.
const maxToken = 4 << 10

// remoteHouse is the client of a server.
func (a *app) remoteHouse(ctx context.Context, loaded *config.Loaded) (*house, error) {
	c, err := a.connect(ctx, loaded)
	if err != nil {
		return nil, err
	}
	return &house{node: c, data: loaded.Config.Data.Dir, client: c, remote: true, note: a.note}, nil
}

// answers makes sure that the server is there, before anything is said or asked.
func (a *app) answers(ctx context.Context, loaded *config.Loaded) error {
	c, err := a.connect(ctx, loaded)
	if err != nil {
		return err
	}
	return c.Close()
}

// connect reaches the server that the configuration, the environment or the command line names.
func (a *app) connect(ctx context.Context, loaded *config.Loaded) (*client.Client, error) {
	s := client.Server{URL: loaded.Config.Server.URL}
	var err error
	if s.Token, err = a.token(loaded); err != nil {
		return nil, err
	}
	if file := loaded.Config.Server.TLS.CA; file != "" {
		if s.CA, err = os.ReadFile(file); err != nil {
			return nil, &exitError{code: exitConfig, what: fmt.Sprintf("server.tls.ca (%s): %v", loaded.Origin("server.tls.ca"), err), err: err}
		}
	}
	c, err := client.Connect(ctx, s)
	where := fmt.Sprintf("server %s (%s)", s.URL, loaded.Origin("server.url"))
	switch {
	case errors.Is(err, client.ErrUnreachable):
		return nil, &exitError{
			code: exitUnreachable, what: fmt.Sprintf("%s: %v", where, err), err: err,
			hint: "start it with: troupe serve\nor leave the server out to work with the data directory of this machine",
		}
	case err != nil:
		return nil, &exitError{code: exitConfig, what: fmt.Sprintf("%s: %v", where, err), err: err}
	}
	return c, nil
}

// token is the one for servers: of TROUPE_TOKEN, else of the file; "" when there is none.
func (a *app) token(loaded *config.Loaded) (string, error) {
	if t := strings.TrimSpace(a.env["TROUPE_TOKEN"]); t != "" {
		return t, nil
	}
	path := filepath.Join(loaded.Dirs.Config, tokenFile)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", &exitError{code: exitIO, what: "read the token: " + err.Error(), err: err}
	case !info.Mode().IsRegular() || info.Size() > maxToken:
		return "", &exitError{code: exitConfig, what: fmt.Sprintf("%s is no file with a token", path), hint: "put the token alone into it, or set TROUPE_TOKEN"}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", &exitError{code: exitIO, what: "read the token: " + err.Error(), err: err}
	}
	t := strings.TrimSpace(string(b))
	a.keepSecret([]config.Secret{config.NewSecret(t)})
	return t, nil
}
