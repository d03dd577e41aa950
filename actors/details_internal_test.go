package actors

import (
	"encoding/json"
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestWhatToolsSayIsWrittenAsEncodingJSONWritesIt(t *testing.T) {
	t.Parallel()
	value := rapid.OneOf(
		rapid.String().AsAny(), rapid.Int().AsAny(), rapid.Int64().AsAny(), rapid.Bool().AsAny(), rapid.Float64().AsAny(),
		rapid.SliceOf(rapid.String()).AsAny(), rapid.MapOf(rapid.String(), rapid.Int()).AsAny(), rapid.Just(any(nil)),
		rapid.SampledFrom([]string{"<b>&", "\u2028", "\x7f", "a\\b\"c", "\xff", "\n"}).AsAny(),
	)
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.MapOf(rapid.String(), value).Draw(t, "said")
		want, err := json.Marshal(m)
		if err != nil || len(m) == 0 {
			want = nil
		}
		if got := asJSON(m); got != string(want) {
			t.Fatalf("%q is written as %s, not %s", m, got, want)
		}
	})
	if got := asJSON(map[string]any{"size": 1, "share": math.NaN()}); got != "" {
		t.Errorf("what cannot be written is written as %s", got)
	}
}
