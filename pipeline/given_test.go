package pipeline_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/pipeline"
)

func TestAValueThatIsMoreThanOneOrNoneIsRefusedWithItsInput(t *testing.T) {
	f := parse(t, head+"inputs: {n: {type: number}, l: {type: list}}\nsteps: [{id: a, agent: x, prompt: x}]\n").Root
	for word, want := range map[string]string{"n=3 4": "input n is of type number", "l=[1] x": "input l is of type list", "n=1e400": `input n: the number "1e400" is too large`, "n=": "input n is of type number"} {
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

func TestWhatCanBeNoRowsAndNoTypeIsRefusedWhereItStands(t *testing.T) {
	for with, want := range map[string]string{
		"rows: 5":                   "t.yaml:6:7: step \"a\": the rows of write_csv are a list, and this is none",
		"rows: text":                "the rows of write_csv are a list, and this is none",
		"rows: ~":                   "the rows of write_csv are a list, and this is none",
		"rows: {a: 1}":              "this is an object",
		"rows: [[1], 5]":            "row 2 of write_csv is neither a list nor an object",
		"rows: []":                  "",
		"rows: [[1, x], {a: 2}]":    "",
		"rows: '${{ inputs.n }}'":   "",
		"rows: ['${{ inputs.n }}']": "",
		"rows: [[1]]}}\ninputs: {m: {type: ''}}#":   "t.yaml:7:20: the type of input \"m\" is empty",
		"rows: [[1]]}}\ninputs: {m: {type: text}}#": "\"text\" is not known here",
	} {
		inputs := "inputs: {n: {type: list, default: []}}\n"
		if strings.Contains(with, "inputs: {m") {
			inputs = "description: x\n"
		}
		_, err := pipeline.Parse("t.yaml", head+inputs+"steps:\n  - {id: a, tool: write_csv, with: {path: p,\n      "+with+"}}\n", pipeline.Options{})
		if got := fmt.Sprint(err); (err == nil) != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %v", with, err)
		}
	}
}
