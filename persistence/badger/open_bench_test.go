package badger

import (
	"context"
	"testing"
)

// BenchmarkOpenClose is what every `troupe run` pays: a directory opened and closed again.
func BenchmarkOpenClose(b *testing.B) {
	for _, fresh := range []bool{true, false} {
		name := "again"
		if fresh {
			name = "fresh"
		}
		b.Run(name, func(b *testing.B) {
			dir := b.TempDir()
			b.ReportAllocs()
			for b.Loop() {
				if fresh {
					dir = b.TempDir()
				}
				s, err := Open(context.Background(), Options{Dir: dir})
				if err != nil {
					b.Fatal(err)
				}
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
