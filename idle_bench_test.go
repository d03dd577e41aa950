package troupe_test

import (
	"context"
	"os"
	"runtime"
	"testing"

	"github.com/troupe-dev/troupe"
)

// BenchmarkIdle measures what is kept in memory, heap and stacks, by a session that rests after its first turn with a tool call, and by one worker more of a session that has one.
func BenchmarkIdle(b *testing.B) {
	const n = 400
	for _, kind := range []string{"session", "worker"} {
		b.Run(kind, func(b *testing.B) {
			ctx := b.Context()
			rt, err := troupe.New(ctx, troupe.Options{DataDir: b.TempDir(), Model: scripted(`
rules:
  - steps:
      - tool_calls: [{name: read_file, arguments: {path: note.txt}}]
      - text: It is a note.
`)})
			if err != nil {
				b.Fatal(err)
			}
			defer rt.Close(context.WithoutCancel(ctx))
			dir := b.TempDir()
			if err := os.WriteFile(dir+"/note.txt", []byte("a note"), 0o600); err != nil {
				b.Fatal(err)
			}
			session := func() *troupe.Session {
				s, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir, Trust: troupe.Full})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := s.Run(ctx, "What is in it?"); err != nil {
					b.Fatal(err)
				}
				return s
			}
			s := session()
			for range 20 {
				session() // what is there once for all
			}
			for range b.N {
				before := kept()
				for range n {
					if kind == "session" {
						session()
						continue
					}
					w, err := s.NewWorker(ctx, troupe.WorkerOptions{})
					if err != nil {
						b.Fatal(err)
					}
					if _, err := w.Run(ctx, "What is in it?"); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(kept()-before)/n/1024, "KiB/"+kind)
			}
		})
	}
}

// kept is the live heap and the stacks.
func kept() int64 {
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
