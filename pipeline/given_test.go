package pipeline_test

import (
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/pipeline"
)

func TestAValueThatIsMoreThanOneOrNoneIsRefusedWithItsInput(t *testing.T) {
	f := parse(t, head+"inputs: {n: {type: number}, l: {type: list}}\nsteps: [{id: a, agent: x, prompt: x}]\n").Root
	for word, want := range map[string]string{"n=3 4": "input n is of type number", "l=[1] x": "input l is of type list", "n=1e400": "input n: ", "n=": "input n is of type number"} {
		given, err := f.Set([]string{word})
		if err == nil {
			_, err = f.Fill(given, nil)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--set %q: %v, want %q", word, err, want)
		}
	}
}

func TestALineThatIsIndentedWithATabIsToldAsThat(t *testing.T) {
	_, err := pipeline.Parse("t.yaml", head+"steps:\n  - id: a\n\tagent: default\n", pipeline.Options{})
	if err == nil || !strings.Contains(err.Error(), "indented with a tab") || !strings.Contains(err.Error(), "indent with spaces") {
		t.Errorf("%v", err)
	}
}
