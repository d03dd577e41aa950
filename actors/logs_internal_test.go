package actors

import (
	"bytes"
	"log/slog"
	"testing"
)

// TestALogThatNamesItsWorkerSaysWhatOneWithItsNamesSays: whether they are added beforehand or when something is logged.
func TestALogThatNamesItsWorkerSaysWhatOneWithItsNamesSays(t *testing.T) {
	var now, before bytes.Buffer
	handler := func(b *bytes.Buffer) slog.Handler {
		return slog.NewTextHandler(b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})
	}
	svc := &Services{Log: slog.New(handler(&now).WithAttrs([]slog.Attr{slog.String("house", "one")}))}
	was := slog.New(handler(&before).WithAttrs([]slog.Attr{slog.String("house", "one")}))
	say := func(log *slog.Logger) {
		log.Debug("nobody hears this")
		log.Info("plain")
		log.Warn("with more", "err", "bad", "count", 3, "a", 1, "b", 2, "c", 3, "d", 4)
		log.With("trace", "t").Info("with a trace", "turn", "tu_1")
		log.WithGroup("call").Info("in a group", "id", 1)
	}
	say(svc.logOf("ses_1", "wk_1"))
	say(was.With("session", "ses_1", "worker", "wk_1"))
	say(svc.logOf("ses_1", ""))
	say(was.With("session", "ses_1"))
	if now.String() != before.String() || now.Len() == 0 {
		t.Errorf("it says\n%s\nand not\n%s", now.String(), before.String())
	}
}
