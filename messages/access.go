package messages

import (
	"encoding/hex"
	"time"
)

// TokenJSON is a token as it is listed: its secret is nowhere.
type TokenJSON struct {
	ID        string   `json:"id"`    // its name
	State     string   `json:"state"` // active | expired | revoked
	Scopes    []string `json:"scopes" enum:"read,prompt,approve,admin"`
	Tenant    string   `json:"tenant,omitempty"` // absent: the default tenant
	CreatedAt string   `json:"created_at,omitempty"`
	ExpiresAt string   `json:"expires_at,omitempty"` // absent: never
	By        string   `json:"by,omitempty"`
	RevokedAt string   `json:"revoked_at,omitempty"`
	RevokedBy string   `json:"revoked_by,omitempty"`
}

// CreateTokenJSON asks for a token. Who asks keeps the secret: only its hash travels.
type CreateTokenJSON struct {
	Name      string   `json:"name"`
	Hash      string   `json:"hash"` // SHA-256 of the secret, in hexadecimal digits
	Scopes    []string `json:"scopes" enum:"read,prompt,approve,admin"`
	Tenant    string   `json:"tenant,omitempty"`
	ExpiresAt string   `json:"expires_at,omitempty"`
	By        string   `json:"by,omitempty"`
}

// The states of a token.
const (
	StateActive  = "active"
	StateExpired = "expired"
	StateRevoked = "revoked"
)

// StateAt says whether a token lets anybody in at a moment.
func (x *Token) StateAt(now time.Time) string {
	switch {
	case x.GetRevokedAtUnixMs() != 0:
		return StateRevoked
	case x.GetExpiresAtUnixMs() != 0 && now.UnixMilli() >= x.GetExpiresAtUnixMs():
		return StateExpired
	}
	return StateActive
}

// JSON is the form that every surface shows.
func (x *Token) JSON() TokenJSON {
	return TokenJSON{
		ID: x.GetName(), State: x.StateAt(time.Now()), Scopes: x.GetScopes(), Tenant: x.GetTenant(), CreatedAt: shownTime(x.GetCreatedAtUnixMs()),
		ExpiresAt: shownTime(x.GetExpiresAtUnixMs()), By: x.GetBy(), RevokedAt: shownTime(x.GetRevokedAtUnixMs()), RevokedBy: x.GetRevokedBy(),
	}
}

func shownTime(ms int64) string {
	if ms == 0 {
		return ""
	}
	return FormatTime(ms)
}

// Proto is the way back, for clients.
func (j TokenJSON) Proto() *Token {
	return &Token{
		Name: j.ID, Scopes: j.Scopes, Tenant: j.Tenant, CreatedAtUnixMs: timeRead(j.CreatedAt), ExpiresAtUnixMs: timeRead(j.ExpiresAt), By: j.By,
		RevokedAtUnixMs: timeRead(j.RevokedAt), RevokedBy: j.RevokedBy,
	}
}

// JSON lists them; never null.
func (x *Tokens) JSON() []TokenJSON { return list(x.GetTokens(), (*Token).JSON) }

// Proto is what is asked of the house.
func (j *CreateTokenJSON) Proto() (*CreateToken, error) {
	hash, err := hex.DecodeString(j.Hash)
	if err != nil {
		return nil, Fail(CodeBadRequest, "the hash of the token is not in hexadecimal digits", "")
	}
	if j.ExpiresAt != "" && timeRead(j.ExpiresAt) == 0 {
		return nil, Fail(CodeBadRequest, "expires_at is no time", "write it like 2026-03-01T09:00:00.000Z")
	}
	return &CreateToken{Token: &Token{Name: j.Name, Hash: hash, Scopes: j.Scopes, Tenant: j.Tenant, ExpiresAtUnixMs: timeRead(j.ExpiresAt), By: j.By}}, nil
}

// CreateTokenFrom is the body that asks for a token.
func CreateTokenFrom(m *CreateToken) CreateTokenJSON {
	t := m.GetToken()
	return CreateTokenJSON{
		Name: t.GetName(), Hash: hex.EncodeToString(t.GetHash()), Scopes: t.GetScopes(), Tenant: t.GetTenant(), ExpiresAt: shownTime(t.GetExpiresAtUnixMs()), By: t.GetBy(),
	}
}
