package model_test

import (
	"testing"

	"github.com/troupe-dev/troupe/model"
)

func TestWindowsAreKnownByTheProvidersNames(t *testing.T) {
	for name, want := range map[string]int64{
		"gpt-4.1-mini": 1_047_576, "gpt-4": 8_192, "gpt-4-0613": 8_192, "gpt-4-turbo-2024-04-09": 128_000, "gpt-4o-mini": 128_000,
		"gpt-5": 400_000, "gpt-5-mini": 400_000, "gpt-5-chat-latest": 128_000, "o1-mini": 128_000, "o1": 200_000, "o3-mini": 200_000,
		"anthropic/claude-sonnet-4-20250514": 200_000, "claude-3-5-haiku-latest": 200_000, "google/gemini-2.5-pro": 1_048_576,
		"gpt-4x": 0, "llama3.2": 0, "": 0, "demo": 0,
	} {
		if got := model.Window(name); got != want {
			t.Errorf("%s: %d, not %d", name, got, want)
		}
	}
}
