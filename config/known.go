package config

import (
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Secrets gives every secret that this configuration and environment hold now, for a Redactor: keys
// of all providers and of the store, access tokens, the database's password, what MCP servers are given, and the
// values of variables that are named like secrets. What cannot be read is left out, and no command
// is run: its key is known when it is used.
func (l *Loaded) Secrets() []Secret {
	c := l.Config
	out := EnvSecrets(l.env)
	for name, p := range c.Providers {
		if key, err := l.keptKey(name, p); err == nil {
			out = append(out, key)
		}
	}
	for name := range c.Server.Tokens {
		if token, err := l.Token(name); err == nil {
			out = append(out, token)
		}
	}
	if _, key, err := l.keptStoreKey(); err == nil && !key.IsZero() {
		out = append(out, key)
		if raw, err := ParseKey(key); err == nil { // in its other forms, too
			out = append(out, NewSecret(string(raw)))
		}
	}
	if dsn := l.env[c.Data.DSNEnv]; dsn != "" {
		out = append(out, NewSecret(dsn), NewSecret(password(dsn)))
	}
	for _, server := range c.MCP {
		for _, values := range []map[string]Secret{server.Env, server.Headers} {
			for _, v := range values {
				_, credentials, _ := strings.Cut(v.Reveal(), " ") // Authorization: Bearer ...
				out = append(out, v, NewSecret(credentials))
			}
		}
	}
	return out
}

// EnvSecrets gives the values of variables that are secrets by their name, and passwords in addresses.
func EnvSecrets(env Env) []Secret {
	var out []Secret
	for name, value := range env {
		if NamedLikeSecret(name) && !isFile(value) {
			out = append(out, NewSecret(value))
		}
		out = append(out, NewSecret(password(value)))
	}
	return out
}

// NamedLikeSecret tells by its name whether a variable holds a secret, as OPENAI_API_KEY,
// GITHUB_TOKEN and DB_PASSWORD do and TOKEN_FILE does not.
func NamedLikeSecret(name string) bool {
	parts := strings.Split(strings.ToUpper(name), "_")
	last := parts[len(parts)-1]
	if slices.Contains([]string{"FILE", "PATH", "DIR", "URL", "ID", "NAME", "USER", "SOCK", "COMMAND", "TTL"}, last) {
		return false
	}
	return slices.Contains([]string{"KEY", "APIKEY", "PAT", "PASS"}, last) ||
		slices.ContainsFunc(parts, func(p string) bool {
			return slices.Contains([]string{"TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIALS"}, p)
		})
}

// isFile tells whether a value is a path to a secret rather than one.
func isFile(value string) bool {
	if !filepath.IsAbs(value) {
		return false
	}
	_, err := os.Stat(value)
	return err == nil
}

// password is the password in an address such as postgres://user:password@host/db, "" if there is none.
func password(value string) string {
	if !strings.Contains(value, "://") || !strings.Contains(value, "@") {
		return ""
	}
	u, err := url.Parse(strings.TrimSpace(value))
	if err != nil {
		return ""
	}
	p, _ := u.User.Password()
	return p
}
