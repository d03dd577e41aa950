package troupe

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// tokenBook is what is known of the tokens of a store: all of it, as one process holds a store. What is changed is durable before it counts here.
type tokenBook struct {
	mu     sync.Mutex // of the map, for as long as a look takes
	change sync.Mutex // one change at a time, on disk
	byName map[string]*messages.Token
	byHash map[[sha256.Size]byte]string
	damage error // why it is not known which there are; nil: it is
}

func (b *tokenBook) load(ctx context.Context, svc *actors.Services) error {
	all, err := actors.ReadTokens(ctx, svc.Store)
	if errors.Is(err, persistence.ErrCorrupt) { // only who serves needs them
		svc.Log.Error("tokens may be lost: nobody is let in by one before a repair", "err", err)
		b.damage, err = err, nil
	}
	if err != nil {
		return err
	}
	b.byName, b.byHash = make(map[string]*messages.Token), make(map[[sha256.Size]byte]string)
	for _, t := range all {
		b.put(t)
	}
	return nil
}

// TokensLost says why it is not known which tokens there are, or were revoked: the store is damaged. nil: it is known.
func (rt *Runtime) TokensLost() error { return rt.access.damage }

// tokensLost refuses what needs all of them; nil: they are known.
func (rt *Runtime) tokensLost() *Failure {
	if err := rt.TokensLost(); err != nil {
		return messages.Fail(messages.CodeCorrupt, "tokens may be lost: "+err.Error(), "end the server, and run `troupe repair`; then make them again")
	}
	return nil
}

// put replaces what is known of a name.
func (b *tokenBook) put(t *messages.Token) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if old := b.byName[t.GetName()]; old != nil {
		delete(b.byHash, [sha256.Size]byte(old.GetHash()))
	}
	b.byName[t.GetName()], b.byHash[[sha256.Size]byte(t.GetHash())] = t, t.GetName()
}

func (b *tokenBook) named(name string) *messages.Token {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.byName[name]
}

// Tokens lists the tokens for servers of this data directory by name, also those that were revoked or have expired.
func (rt *Runtime) Tokens() []*messages.Token { return rt.listTokens().GetTokens() }

func (rt *Runtime) listTokens() *messages.Tokens {
	rt.access.mu.Lock()
	defer rt.access.mu.Unlock()
	out := &messages.Tokens{}
	for _, t := range rt.access.byName {
		shown := proto.CloneOf(t)
		shown.Hash = nil
		out.Tokens = append(out.Tokens, shown)
	}
	slices.SortFunc(out.Tokens, func(a, b *messages.Token) int { return strings.Compare(a.GetName(), b.GetName()) })
	return out
}

// tokenScopes are those that a token may have.
func tokenScopes() []string { return []string{"read", "prompt", "approve", "admin"} }

// callable says whether a token, or a tenant, may be called so.
func callable(name string) bool {
	ok, err := regexp.MatchString(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`, name)
	return ok && err == nil
}

func checkToken(t *messages.Token) *Failure {
	bad := func(format string, args ...any) *Failure {
		return messages.Fail(messages.CodeBadRequest, fmt.Sprintf(format, args...), "")
	}
	switch {
	case !callable(t.GetName()):
		return bad("%q is no name for a token: up to 64 letters, digits, dots, dashes and underscores, a letter or digit first", t.GetName())
	case strings.HasPrefix(t.GetName(), "config."):
		return bad("%q is no name for a token: those of the configuration are called so", t.GetName())
	case t.GetTenant() != "" && !callable(t.GetTenant()):
		return bad("%q is no name for a tenant: up to 64 letters, digits, dots, dashes and underscores, a letter or digit first", t.GetTenant())
	case len(t.GetHash()) != sha256.Size:
		return bad("the hash of the token has %d bytes instead of %d", len(t.GetHash()), sha256.Size)
	case len(t.GetScopes()) == 0:
		return bad("the token has no scope: it could do nothing")
	}
	for _, s := range t.GetScopes() {
		if !slices.Contains(tokenScopes(), s) {
			return messages.Fail(messages.CodeBadRequest, fmt.Sprintf("there is no scope %q", s), "scopes are "+strings.Join(tokenScopes(), ", "))
		}
	}
	return nil
}

func (rt *Runtime) createToken(ctx context.Context, m *messages.CreateToken) (proto.Message, error) {
	rt.access.change.Lock()
	defer rt.access.change.Unlock()
	if fail := checkToken(m.GetToken()); fail != nil {
		return nil, fail
	}
	if fail := rt.tokensLost(); fail != nil {
		return nil, fail
	}
	now := rt.svc.Now().UnixMilli()
	t := proto.CloneOf(m.GetToken())
	t.CreatedAtUnixMs, t.RevokedAtUnixMs, t.RevokedBy = now, 0, ""
	if old := rt.access.named(t.GetName()); old != nil && counts(old, now) {
		return nil, messages.Fail(messages.CodeAlreadyExists, "there is a token "+t.GetName()+" already", "revoke it first, or use another name")
	}
	if e := t.GetExpiresAtUnixMs(); e != 0 && e <= now {
		return nil, messages.Fail(messages.CodeBadRequest, "the token would have expired already", "")
	}
	if err := rt.svc.PutToken(ctx, t); err != nil {
		return nil, err
	}
	rt.access.put(t)
	shown := proto.CloneOf(t)
	shown.Hash = nil
	return shown, nil
}

func (rt *Runtime) revokeToken(ctx context.Context, m *messages.RevokeToken) (proto.Message, error) {
	rt.access.change.Lock()
	defer rt.access.change.Unlock()
	old := rt.access.named(m.GetName())
	if fail := rt.tokensLost(); old == nil && fail != nil {
		return nil, fail
	}
	if old == nil {
		return nil, messages.Fail(messages.CodeNotFound, fmt.Sprintf("there is no token %q", m.GetName()), "`troupe token ls` lists them")
	}
	if old.GetRevokedAtUnixMs() != 0 {
		return &messages.Ack{}, nil
	}
	t := proto.CloneOf(old)
	t.RevokedAtUnixMs, t.RevokedBy = rt.svc.Now().UnixMilli(), m.GetBy()
	if err := rt.svc.PutToken(ctx, t); err != nil {
		return nil, err
	}
	rt.access.put(t)
	return &messages.Ack{}, nil
}

// counts says whether a token lets anybody in at a moment.
func counts(t *messages.Token, nowMs int64) bool {
	return t.GetRevokedAtUnixMs() == 0 && (t.GetExpiresAtUnixMs() == 0 || nowMs < t.GetExpiresAtUnixMs())
}

// findToken looks a hash up. That a comparison takes its time tells nothing: what is compared is a hash of what was sent.
func (rt *Runtime) findToken(m *messages.FindToken) (proto.Message, error) {
	none := messages.Fail(messages.CodeNotFound, "there is no such token", "")
	if len(m.GetHash()) != sha256.Size {
		return nil, none
	}
	rt.access.mu.Lock()
	defer rt.access.mu.Unlock()
	if rt.access.damage != nil { // one that was revoked may be there as it was before
		return nil, none
	}
	t := rt.access.byName[rt.access.byHash[[sha256.Size]byte(m.GetHash())]]
	if t == nil || !counts(t, rt.svc.Now().UnixMilli()) {
		return nil, none
	}
	return proto.CloneOf(t), nil
}
