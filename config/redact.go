package config

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Which values are searched for. Replacing every "a" would hide nothing and break everything, and
// what servers that need no key are given in its place are words: "not-needed", "anything".
const (
	leastSecret = 8  // bytes
	leastWord   = 16 // bytes of a value of small letters, dashes and underscores alone
)

// Redactor replaces secrets by value, wherever they turn up: an error of a provider that repeats
// the key, a command's output, a header in a log. It finds a value also as base64, hexadecimal
// digits, in an address or a JSON text, and the encoded forms also when they are broken into
// lines, and the lines of a value that has several, from 16 bytes on. Values shorter than 8 bytes, and words (shorter than 16, only small letters, dashes and
// underscores), are not searched for.
//
// It may learn further secrets at any time. The zero value and nil know none, and cost nothing. It
// is safe for concurrent use.
type Redactor struct {
	table atomic.Pointer[needles]

	learn   sync.Mutex
	values  map[string]bool // that are searched for; true: for good
	passing []string        // of them, those that are not, the oldest first
}

// keptPassing is how many values that pass are searched for at least: each makes every text dearer.
const keptPassing = 256

// NewRedactor knows the given secrets.
func NewRedactor(secrets ...Secret) *Redactor {
	r := &Redactor{}
	r.Learn(secrets...)
	return r
}

// Learn adds secrets to those that are known.
func (r *Redactor) Learn(secrets ...Secret) {
	for _, s := range secrets {
		r.add(strings.TrimSpace(s.Reveal()), true)
	}
}

// LearnValues is Learn for values as they are.
func (r *Redactor) LearnValues(values ...string) {
	for _, v := range values {
		r.add(strings.TrimSpace(v), true)
	}
}

// LearnPassing adds values that live for a while, as those that are made anew for each call. Of such values
// the newest are known, 256 at least.
func (r *Redactor) LearnPassing(values ...string) {
	for _, v := range values {
		r.add(strings.TrimSpace(v), false)
	}
}

func (r *Redactor) add(v string, good bool) {
	if !searchable(v) {
		return
	}
	r.learn.Lock()
	defer r.learn.Unlock()
	if r.values == nil {
		r.values = map[string]bool{}
	}
	forGood, known := r.values[v]
	switch {
	case known && !good && !forGood: // it is new again
		at := slices.Index(r.passing, v)
		r.passing = append(slices.Delete(r.passing, at, at+1), v)
		return
	case known && (forGood || !good):
		return
	case known:
		r.passing = slices.DeleteFunc(r.passing, func(p string) bool { return p == v })
	case !good:
		r.passing = append(r.passing, v)
	}
	r.values[v] = good
	if len(r.passing) < 2*keptPassing {
		if !known {
			r.table.Store(r.table.Load().with(v))
		}
		return
	}
	for _, old := range r.passing[:keptPassing] {
		delete(r.values, old)
	}
	r.passing = slices.Clone(r.passing[keptPassing:])
	r.table.Store((*needles)(nil).with(slices.Collect(maps.Keys(r.values))...))
}

func searchable(v string) bool {
	word := strings.IndexFunc(v, func(c rune) bool { return (c < 'a' || c > 'z') && c != '-' && c != '_' }) < 0
	return len(v) >= leastSecret && (!word || len(v) >= leastWord)
}

// known gives the table of what is searched for, nil when that is nothing.
func (r *Redactor) known() *needles {
	if r == nil {
		return nil
	}
	return r.table.Load()
}

// String gives s without the secrets.
func (r *Redactor) String(s string) string {
	t := r.known()
	if t == nil {
		return s
	}
	out, _ := t.scan(s, true)
	return out
}

// Scan is String for a text that arrives in pieces: it gives what is sure of s, and the rest from
// where a secret may have begun whose end is still to come. The rest belongs before the next
// piece; after the last one, String finishes it.
func (r *Redactor) Scan(s string) (out, rest string) {
	t := r.known()
	if t == nil {
		return s, ""
	}
	return t.scan(s, false)
}

// Error gives an error that prints without the secrets and still unwraps to err. nil stays nil.
func (r *Redactor) Error(err error) error {
	if err == nil || r.known() == nil {
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
func (r *Redactor) Writer(w io.Writer) *RedactingWriter { return &RedactingWriter{r: r, w: w} }

// RedactingWriter is made by Redactor.Writer.
type RedactingWriter struct {
	r    *Redactor
	w    io.Writer
	mu   sync.Mutex
	held string // raw: may be the beginning of a secret
}

// Write passes on what can no longer be part of a secret. It reports len(p) written unless the
// writer below fails.
func (w *RedactingWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	out, rest := w.r.Scan(w.held + string(p))
	w.held = rest
	return len(p), w.pass(out)
}

// Flush passes on what was held back. What arrives after it is a new beginning.
func (w *RedactingWriter) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.r.String(w.held)
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
