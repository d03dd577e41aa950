package actors

import (
	"context"
	"log/slog"
)

// namedLog is the house's log with the names of a session and of a worker. It adds them to what is logged rather than to a copy of the handler that
// is made beforehand: there are many of both, and few of them log.
type namedLog struct {
	slog.Handler
	session, worker string // worker: "" for the session itself
}

// logOf is the log of a session, or of one of its workers.
func (s *Services) logOf(session, worker string) *slog.Logger {
	return slog.New(&namedLog{s.Log.Handler(), session, worker})
}

func (n *namedLog) attrs() []slog.Attr {
	attrs := []slog.Attr{slog.String("session", n.session)}
	if n.worker != "" {
		attrs = append(attrs, slog.String("worker", n.worker))
	}
	return attrs
}

// Handle implements slog.Handler: the names stand before what the record says itself.
func (n *namedLog) Handle(ctx context.Context, r slog.Record) error {
	out := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	out.AddAttrs(n.attrs()...)
	r.Attrs(func(a slog.Attr) bool {
		out.AddAttrs(a)
		return true
	})
	return n.Handler.Handle(ctx, out)
}

// WithAttrs implements slog.Handler.
func (n *namedLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return n.Handler.WithAttrs(append(n.attrs(), attrs...))
}

// WithGroup implements slog.Handler.
func (n *namedLog) WithGroup(name string) slog.Handler {
	return n.Handler.WithAttrs(n.attrs()).WithGroup(name)
}
