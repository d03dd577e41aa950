package config

import (
	"fmt"
	"log/slog"
)

// redacted is what every surface shows in place of a secret.
const redacted = "[redacted]"

// Secret holds a key or token. However it is printed, logged or encoded, it shows [redacted];
// only Reveal gives the value. The zero value is no secret.
//
// The value sits behind a pointer: packages that print by reflection (%#v of a struct that holds
// one unexported, spew) then show an address at most.
type Secret struct{ value *string }

// NewSecret wraps a value. The empty value gives the zero Secret.
func NewSecret(value string) Secret {
	if value == "" {
		return Secret{}
	}
	return Secret{value: &value}
}

// Reveal gives the value, "" if there is none. Call it where the secret is sent, nowhere else.
func (s Secret) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// IsZero tells whether there is no secret.
func (s Secret) IsZero() bool { return s.value == nil }

// String redacts.
func (s Secret) String() string {
	if s.value == nil {
		return ""
	}
	return redacted
}

// GoString redacts.
func (s Secret) GoString() string { return fmt.Sprintf("config.Secret(%q)", s.String()) }

// Format redacts, whatever the verb.
func (s Secret) Format(f fmt.State, verb rune) {
	out := s.String()
	if verb == 'q' || verb == 'v' && f.Flag('#') {
		out = s.GoString()
	}
	_, _ = f.Write([]byte(out)) // a fmt.State keeps its own errors
}

// MarshalText redacts; JSON map keys, XML and others use it.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalJSON redacts.
func (s Secret) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, "%q", s.String()), nil }

// MarshalYAML redacts.
func (s Secret) MarshalYAML() (any, error) { return s.String(), nil }

// LogValue redacts.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }
