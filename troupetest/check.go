package troupetest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/pipeline"
)

// Check plays the transcript in a file and fails the test where something else comes than it says. A transcript's model, when it names the file of
// a script, is used unless o has one. TROUPETEST_UPDATE=1 writes what came into the file instead.
func Check(tb testing.TB, path string, o troupe.Options) {
	tb.Helper()
	t, err := ReadTranscript(path)
	if err != nil {
		tb.Fatal(err)
	}
	if o.Model == nil && o.Models == nil && t.Model != "" {
		if _, err := os.Stat(t.Beside(t.Model)); err != nil {
			tb.Fatal(t.Fault("model", t.Model, err, "the file of a script, or give Options.Model"))
		}
		o.Model = ModelFile(tb, t.Beside(t.Model))
	}
	s := Stage{Dir: tb.TempDir()}
	if err := t.Furnish(s.Dir); err != nil {
		tb.Fatal(err)
	}
	if t.Pipeline != "" {
		file := t.Beside(t.Pipeline)
		text, err := os.ReadFile(file) //nolint:gosec // the test names it
		if err != nil {
			tb.Fatal(t.Fault("pipeline", t.Pipeline, err, ""))
		}
		load := func(name string) ([]byte, error) {
			return os.ReadFile(filepath.Join(filepath.Dir(file), filepath.FromSlash(name)))
		}
		if s.Plan, err = pipeline.Parse(filepath.Base(file), string(text), pipeline.Options{Load: load}); err != nil {
			tb.Fatal(err)
		}
	}
	p, err := t.Play(tb.Context(), Runtime(tb, o), s)
	if err != nil {
		tb.Fatal(err)
	}
	diff := p.Diff()
	switch {
	case diff == "":
	case os.Getenv(UpdateVariable) != "":
		write(tb, path, p.Text())
	default:
		tb.Errorf("- expected, + now (%s=1 writes it anew):\n%s", UpdateVariable, diff)
	}
}
