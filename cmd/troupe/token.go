package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/messages"
)

func newToken(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Tokens for the server: create, ls, revoke",
		Long: `Tokens for the server: create, ls, revoke.

Without a token made, a server on loopback is open to whoever is on this machine. From the first one on, requests over the network need
one; a running server sees at once what changes. The socket in the data directory stays its owner's, and needs none.

Scopes, none of which includes another: read (lists, conversations, events), prompt (sessions and inputs), approve (answers), admin
(full trust, folders outside server.roots; of the default tenant also the store, projects and tokens). A token sees the sessions of its tenant alone.`,
	}
	cmd.AddCommand(newTokenCreate(a), newTokenList(a), newTokenRevoke(a))
	return cmd
}

// tokenWish is what `troupe token create` asks for.
type tokenWish struct {
	scopes  []string
	tenant  string
	expires time.Duration
}

func newTokenCreate(a *app) *cobra.Command {
	var w tokenWish
	cmd := formats(&cobra.Command{
		Use:   "create NAME --scope SCOPE[,SCOPE...]",
		Short: "Make a token; it is shown once",
		Long: `Make a token; it is shown once, on stdout, and kept nowhere: only its hash is.

  troupe token create phone --scope read,prompt,approve --expires 720h
  TROUPE_TOKEN=... troupe ls sessions --server https://host:7777`,
		Args: exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.createToken(cmd.Context(), args[0], w) },
	}, "text", "json", "yaml")
	cmd.Flags().StringSliceVar(&w.scopes, "scope", nil, "what it allows: read, prompt, approve, admin")
	cmd.Flags().StringVar(&w.tenant, "tenant", "", "whose sessions it sees (default: the default tenant)")
	cmd.Flags().DurationVar(&w.expires, "expires", 0, "how long it counts, such as 720h (default: until it is revoked)")
	return cmd
}

// newSecret makes a token: 32 random bytes behind a word by which scanners for leaked secrets may know it.
func newSecret() (secret string, hash []byte) {
	var raw [32]byte
	_, _ = rand.Read(raw[:]) // it does not fail
	secret = "troupe_" + base64.RawURLEncoding.EncodeToString(raw[:])
	sum := sha256.Sum256([]byte(secret))
	return secret, sum[:]
}

func (a *app) createToken(ctx context.Context, name string, w tokenWish) error {
	if len(w.scopes) == 0 {
		e := usage("troupe token create: --scope is missing")
		e.hint = "say what it allows: read, prompt, approve, admin"
		return e
	}
	if w.expires < 0 {
		return usage("troupe token create: --expires %s is in the past", w.expires)
	}
	secret, hash := newSecret()
	m := &messages.Token{Name: name, Hash: hash, Scopes: w.scopes, Tenant: w.tenant, By: "owner"}
	if w.expires > 0 {
		m.ExpiresAtUnixMs = time.Now().Add(w.expires).UnixMilli()
	}
	return a.withStore(ctx, func(ctx context.Context, n node) error {
		t, err := ask[*messages.Token](ctx, n, &messages.CreateToken{Token: m})
		if err != nil {
			return err
		}
		a.note("troupe: token %s (%s)%s; it is shown this once:", t.GetName(), strings.Join(t.GetScopes(), ", "), ofTenant(t))
		made := struct {
			messages.TokenJSON
			Token string `json:"token"`
		}{t.JSON(), secret}
		return a.emit(made, func(out io.Writer) error {
			_, err := fmt.Fprintln(out, secret)
			return err
		})
	})
}

func ofTenant(t *messages.Token) string {
	if t.GetTenant() == "" {
		return ""
	}
	return " of tenant " + t.GetTenant()
}

func newTokenList(a *app) *cobra.Command {
	return formats(&cobra.Command{
		Use:   "ls",
		Short: "List the tokens; those of the configuration are in troupe config show",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			l := &listing{head: []string{"TOKEN", "STATE", "SCOPES", "TENANT", "CREATED", "EXPIRES"}, empty: "there are no tokens: a server on loopback is open to whoever is on this machine; make one with: troupe token create NAME --scope read"}
			return l.print(cmd.Context(), a, func(ctx context.Context, n node) (any, [][]string, error) {
				all, err := ask[*messages.Tokens](ctx, n, &messages.ListTokens{})
				if err != nil {
					return nil, nil, err
				}
				list, rows := all.JSON(), [][]string{}
				for _, t := range list {
					rows = append(rows, []string{t.ID, t.State, strings.Join(t.Scopes, ","), cmp.Or(t.Tenant, "-"), t.CreatedAt, cmp.Or(t.ExpiresAt, "never")})
				}
				return list, rows, nil
			})
		},
	}, "table", "json", "yaml")
}

func newTokenRevoke(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke NAME",
		Short: "End a token: the next request with it is refused, and its streams end",
		Args:  exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			loaded, err := a.load("")
			if err != nil {
				return err
			}
			none := func() error {
				return &exitError{code: exitMissing, what: fmt.Sprintf("there is no token %s", visible(args[0])), hint: "troupe token ls lists them"}
			}
			return a.look(cmd.Context(), loaded, none, func(ctx context.Context, n node) error {
				if _, err := ask[*messages.Ack](ctx, n, &messages.RevokeToken{Name: args[0], By: "owner"}); err != nil {
					return err
				}
				a.note("troupe: token %s is revoked", visible(args[0]))
				return nil
			})
		},
	}
}

// configured are the tokens of the configuration, with the hashes of their secrets.
func configured(loaded *config.Loaded) (map[[sha256.Size]byte]*messages.Token, error) {
	out := make(map[[sha256.Size]byte]*messages.Token)
	for name, t := range loaded.Config.Server.Tokens {
		secret, err := loaded.Token(name)
		if err != nil {
			return nil, err
		}
		if len(secret.Reveal()) < minToken {
			return nil, &exitError{code: exitConfig, what: fmt.Sprintf("server.tokens.%s: the token is shorter than %d bytes: it could be guessed", name, minToken), hint: "make one with: openssl rand -hex 32"}
		}
		if len(t.Scopes) == 0 {
			return nil, &exitError{code: exitConfig, what: fmt.Sprintf("server.tokens.%s has no scopes: it could do nothing", name), hint: "scopes are read, prompt, approve, admin"}
		}
		out[sha256.Sum256([]byte(secret.Reveal()))] = &messages.Token{Name: "config." + name, Scopes: t.Scopes, Tenant: t.Tenant}
	}
	return out, nil
}

// minToken is the shortest token that a configuration may name, in bytes.
const minToken = 20
