package troupetest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/pipeline"
)

// Check plays the transcript in a file and fails the test where something else comes than it says. A transcript's model, when it names the file of
// a script, or replay/ and that of a recording, is used unless o has one. TROUPETEST_UPDATE=1 writes what came into the file instead.
func Check(tb testing.TB, path string, o troupe.Options) {
	tb.Helper()
	t, err := ReadTranscript(path)
	if err != nil {
		tb.Fatal(err)
	}
	if o.Model == nil && o.Models == nil && t.Model != "" {
		file, recorded := strings.CutPrefix(t.Model, "replay/")
		if _, err := os.Stat(t.Beside(file)); err != nil {
			tb.Fatal(t.Fault("model", t.Model, err, "the file of a script, replay/FILE of a recording, or give Options.Model"))
		}
		if recorded {
			o.Model = Replay(tb, t.Beside(file), nil)
		} else {
			o.Model = ModelFile(tb, t.Beside(file))
		}
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
