package config

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
)

// leastSecret is the length below which a value is not searched for: replacing every "a" would
// hide nothing and break everything.
const leastSecret = 6

// Redactor replaces secrets by value, wherever they turn up: an error of a provider that repeats
// the key, a command's output, a header in a log. The zero value replaces nothing. It is
// immutable and safe for concurrent use.
type Redactor struct {
	values []string // the longest first: of two secrets, one a prefix of the other, none leaves a rest
}

// NewRedactor knows the given secrets. Values shorter than 6 bytes are ignored.
func NewRedactor(secrets ...Secret) Redactor {
	var values []string
	for _, s := range secrets {
		if v := s.Reveal(); len(v) >= leastSecret && !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	slices.SortFunc(values, func(a, b string) int { return len(b) - len(a) })
	return Redactor{values: values}
}

// String gives s without the secrets.
func (r Redactor) String(s string) string {
	if !slices.ContainsFunc(r.values, func(v string) bool { return strings.Contains(s, v) }) {
		return s
	}
	out, _ := r.scan(s, true)
	return out
}

// scan replaces the secrets in s. Unless s is all there is, it stops where a secret may have
// begun whose end is still to come, and gives the rest from there.
func (r Redactor) scan(s string, whole bool) (out, rest string) {
	var b strings.Builder
	for i := 0; i < len(s); {
		match, open := r.at(s[i:])
		if open && !whole {
			return b.String(), s[i:]
		}
		if match > 0 {
			b.WriteString(redacted)
			i += match
			continue
		}
		b.WriteByte(s[i])
		i++
	}
	return b.String(), ""
}

// at gives the length of the longest secret that s begins with, and whether s ends inside a longer one.
func (r Redactor) at(s string) (match int, open bool) {
	for _, v := range r.values {
		switch {
		case strings.HasPrefix(s, v):
			match = max(match, len(v))
		case len(s) < len(v) && strings.HasPrefix(v, s):
			open = true
		}
	}
	return match, open
}

// Error gives an error that prints without the secrets and still unwraps to err. nil stays nil.
func (r Redactor) Error(err error) error {
	if err == nil || len(r.values) == 0 {
		return err
	}
	return &redactedError{text: r.String(err.Error()), err: err}
}

type redactedError struct {
	text string
	err  error
}

func (e *redactedError) Error() string { return e.text }
func (e *redactedError) Unwrap() error { return e.err }

// Writer gives a writer that redacts what passes through it, also a secret that arrives in
// pieces: it holds back what may be the beginning of one until more comes or Flush is called. It
// is safe for concurrent use. The caller flushes it at the end.
func (r Redactor) Writer(w io.Writer) *RedactingWriter { return &RedactingWriter{r: r, w: w} }

// RedactingWriter is made by Redactor.Writer.
type RedactingWriter struct {
	r    Redactor
	w    io.Writer
	mu   sync.Mutex
	held string // raw: may be the beginning of a secret
}

// Write passes on what can no longer be part of a secret. It reports len(p) written unless the
// writer below fails.
func (w *RedactingWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	out, rest := w.r.scan(w.held+string(p), false)
	w.held = rest
	return len(p), w.pass(out)
}

// Flush passes on what was held back. What arrives after it is a new beginning.
func (w *RedactingWriter) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	out, _ := w.r.scan(w.held, true)
	w.held = ""
	return w.pass(out)
}

func (w *RedactingWriter) pass(s string) error {
	if s == "" {
		return nil
	}
	if _, err := io.WriteString(w.w, s); err != nil {
		return fmt.Errorf("write redacted output: %w", err)
	}
	return nil
}

// Handler wraps a log handler: messages and values pass without secrets.
func (r Redactor) Handler(h slog.Handler) slog.Handler {
	if len(r.values) == 0 {
		return h
	}
	return &redactingHandler{r: r, h: h}
}

type redactingHandler struct {
	r Redactor
	h slog.Handler
}

func (h *redactingHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return h.h.Enabled(ctx, l)
}

func (h *redactingHandler) Handle(ctx context.Context, rec slog.Record) error {
	out := slog.NewRecord(rec.Time, rec.Level, h.r.String(rec.Message), rec.PC)
	rec.Attrs(func(a slog.Attr) bool {
		out.AddAttrs(h.r.attr(a))
		return true
	})
	return h.h.Handle(ctx, out)
}

func (h *redactingHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	out := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		out[i] = h.r.attr(a)
	}
	return &redactingHandler{r: h.r, h: h.h.WithAttrs(out)}
}

func (h *redactingHandler) WithGroup(name string) slog.Handler {
	return &redactingHandler{r: h.r, h: h.h.WithGroup(name)}
}

// attr redacts a value. Values of unknown types are written out as %+v would, since a handler may
// print any of their fields.
func (r Redactor) attr(a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindString:
		return slog.String(a.Key, r.String(v.String()))
	case slog.KindGroup:
		group := v.Group()
		out := make([]slog.Attr, len(group))
		for i, g := range group {
			out[i] = r.attr(g)
		}
		return slog.Attr{Key: a.Key, Value: slog.GroupValue(out...)}
	case slog.KindAny:
		plain := fmt.Sprintf("%+v", v.Any())
		if safe := r.String(plain); safe != plain {
			return slog.String(a.Key, safe)
		}
	case slog.KindBool, slog.KindDuration, slog.KindFloat64, slog.KindInt64, slog.KindTime, slog.KindUint64, slog.KindLogValuer:
	}
	return slog.Attr{Key: a.Key, Value: v}
}
