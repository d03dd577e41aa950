package config

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// Bounds of reading a secret.
const (
	commandTimeout = 10 * time.Second
	maxSecret      = 16 << 10 // bytes
)

// Key gives the API key of a provider, the zero Secret if it has none and needs none. It reads
// the variable or file, or runs the command (through the shell, at most 10 s), now: a key that
// changes is picked up, and nothing is read that is not used. Errors are *Problem and never hold
// the key.
func (l *Loaded) Key(ctx context.Context, provider string) (Secret, error) {
	p, ok := l.Config.Providers[provider]
	if !ok {
		return Secret{}, &UnknownModelError{Name: provider, Near: Near(provider, l.Config.providerNames()), Why: "no provider has this name"}
	}
	if p.APIKeyCommand != "" {
		return l.secretOfCommand(ctx, child(child("providers", provider), "api_key_command"), p.APIKeyCommand)
	}
	return l.keptKey(provider, p)
}

// keptKey gives a key that stands in a variable or a file, the zero Secret if there is none.
func (l *Loaded) keptKey(provider string, p Provider) (Secret, error) {
	at := child("providers", provider)
	switch {
	case p.APIKeyEnv != "":
		return l.secretOfEnv(child(at, "api_key_env"), p.APIKeyEnv)
	case p.APIKeyFile != "":
		return l.secretOfFile(child(at, "api_key_file"), p.APIKeyFile)
	}
	return Secret{}, nil
}

// StoreKey gives the key that the store is encrypted with, nil when it is not. Errors are *Problem and
// never hold the key.
func (l *Loaded) StoreKey(ctx context.Context) ([]byte, error) {
	at, s, err := l.keptStoreKey()
	if command := l.Config.Data.Encryption.KeyCommand; command != "" {
		at = "data.encryption.key_command"
		s, err = l.secretOfCommand(ctx, at, command)
	}
	if at == "" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	key, err := ParseKey(s)
	if err != nil {
		return nil, l.problem(at, err.Error(), "make one with: head -c 32 /dev/urandom | base64")
	}
	return key, nil
}

// keptStoreKey gives a store's key that stands in a variable or a file, and which setting says so; "" for none.
func (l *Loaded) keptStoreKey() (at string, s Secret, err error) {
	switch e := l.Config.Data.Encryption; {
	case e.KeyEnv != "":
		at = "data.encryption.key_env"
		s, err = l.secretOfEnv(at, e.KeyEnv)
	case e.KeyFile != "":
		at = "data.encryption.key_file"
		s, err = l.secretOfFile(at, e.KeyFile)
	}
	return at, s, err
}

// ParseKey reads a key of 16, 24 or 32 bytes, written in hex or base64. The error does not hold it.
func ParseKey(s Secret) ([]byte, error) {
	text := s.Reveal()
	raw := strings.TrimRight(text, "=")
	for _, decode := range []func(string) ([]byte, error){
		hex.DecodeString, base64.RawStdEncoding.DecodeString, base64.RawURLEncoding.DecodeString,
	} {
		key, err := decode(raw)
		if err == nil && (len(key) == 16 || len(key) == 24 || len(key) == 32) {
			return key, nil
		}
	}
	return nil, fmt.Errorf("the key of %d characters is not 16, 24 or 32 bytes in base64 or hex", len(text))
}

// Token gives the access token of an entry of server.tokens. Errors are *Problem.
func (l *Loaded) Token(name string) (Secret, error) {
	t, at := l.Config.Server.Tokens[name], child("server.tokens", name)
	switch {
	case t.Env != "":
		return l.secretOfEnv(child(at, "token_env"), t.Env)
	case t.File != "":
		return l.secretOfFile(child(at, "token_file"), t.File)
	}
	return Secret{}, &Problem{What: fmt.Sprintf("the token %q has no source", name), Path: at, Fix: "set token_env or token_file"}
}

func (l *Loaded) secretOfEnv(path, name string) (Secret, error) {
	value := strings.TrimSpace(l.env[name])
	if value == "" {
		return Secret{}, l.problem(path, fmt.Sprintf("the variable %s is not set", printable(name)), "export it, or change "+path)
	}
	return l.secret(path, value)
}

func (l *Loaded) secretOfFile(path, name string) (Secret, error) {
	src, err := read(name, openRegular)
	if err != nil {
		return Secret{}, l.problem(path, fmt.Sprintf("read %s: %s", printable(name), reason(err)), "create it with the key alone in it, mode 0600")
	}
	return l.secret(path, strings.TrimSpace(string(src)))
}

func (l *Loaded) secretOfCommand(ctx context.Context, path, command string) (Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	shell, flag := "/bin/sh", "-c"
	if runtime.GOOS == "windows" {
		shell, flag = "cmd", "/C"
	}
	cmd := exec.CommandContext(ctx, shell, flag, command)
	cmd.Env = l.env.pairs()
	cmd.WaitDelay = time.Second // a child that keeps the output open must not hold us
	var out bounded
	cmd.Stdout = &out
	err := cmd.Run()
	switch {
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return Secret{}, l.problem(path, fmt.Sprintf("the command did not end within %s", commandTimeout), "run it by hand: it may wait for input")
	case ctx.Err() != nil:
		return Secret{}, fmt.Errorf("run the command of %s: %w", path, ctx.Err())
	case err != nil: // its output may hold the key and is not repeated
		return Secret{}, l.problem(path, "the command failed: "+err.Error(), "run it by hand to see why")
	}
	return l.secret(path, strings.TrimSpace(out.buf.String()))
}

// secret refuses what cannot be sent in a header.
func (l *Loaded) secret(path, value string) (Secret, error) {
	switch {
	case value == "":
		return Secret{}, l.problem(path, "the key is empty", "")
	case len(value) > maxSecret:
		return Secret{}, l.problem(path, fmt.Sprintf("the key is longer than %d bytes", maxSecret), "")
	case strings.ContainsFunc(value, func(r rune) bool { return r < 0x20 || r == 0x7f }):
		return Secret{}, l.problem(path, "the key has several lines or holds control characters", "the key must stand there alone")
	}
	return NewSecret(value), nil
}

func (l *Loaded) problem(path, what, fix string) *Problem {
	s := l.setting(path)
	return &Problem{What: path + ": " + what, Path: path, Origin: s.Origin, Excerpt: s.excerpt, Fix: fix}
}

// pairs is the environment as a child process takes it.
func (e Env) pairs() []string {
	out := make([]string, 0, len(e))
	for name, value := range e {
		out = append(out, name+"="+value)
	}
	return out
}

// bounded keeps the first bytes and swallows the rest, so that the command does not block.
type bounded struct{ buf bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	b.buf.Write(p[:min(len(p), maxSecret+1-min(b.buf.Len(), maxSecret+1))])
	return len(p), nil
}
