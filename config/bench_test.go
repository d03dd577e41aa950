package config

import "testing"

func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		if _, err := Load(Options{System: "-", Env: Env{"HOME": "/nowhere", "OPENAI_API_KEY": "k"}}); err != nil {
			b.Fatal(err)
		}
	}
}
