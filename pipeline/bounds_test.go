package pipeline_test

import (
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/pipeline"
)

func TestExpressionsAreBounded(t *testing.T) {
	for src, want := range map[string]string{
		`len(reduce(1..19, #acc + #acc, "x"))`:                                                                        "",
		`len(reduce(1..24, #acc + #acc, "x"))`:                                                                        "a text would be longer than",
		`len(map(1..100, reduce(1..19, #acc + #acc, "x") + "y"))`:                                                     "texts of more than",
		`len(reduce(1..7, replace(#acc, "x", "xxxxxxxxxx"), "x"))`:                                                    "a text would be longer than",
		`let l = 1..2000; count(l, count(l, # > 0) == 2000)`:                                                          "memory budget exceeded",
		`reduce(1..24, [#acc, #acc], 1)`:                                                                              "the value would be longer than",
		`len(toJSON(reduce(1..24, [#acc, #acc], 1)))`:                                                                 "a text would be longer than",
		`len(string(reduce(1..24, [#acc, #acc], 1)))`:                                                                 "a text would be longer than",
		`fromJSON(toJSON({"a": [1]})).a[0] == 1 && string(12) == "12"`:                                                "",
		`toJSON(nil) == "null" && (["a", "b"] | join("+")) == "a+b" && len(string(nil)) > 0`:                          "",
		`count(1..100, count(1..100, # > 0) > 0)`:                                                                     "",
		`join(split("a,b", ","), "-") == "a-b" && replace("aab", "a", "c", 1) == "cab"`:                               "",
		`1 + 2 == 3 && 1.5 + 1 == 2.5 && "a" + "b" == "ab" && join(["a", "b"]) == "ab" && sum(map(1..3, # + 1)) == 9`: "",
	} {
		b := newBench(t, head+"steps:\n  - {id: a, agent: x, prompt: x}\noutputs:\n  v: >-\n    ${{ "+src+" }}\n", "", nil)
		b.run(first, echo)
		got := b.s.Finished
		if want == "" && got.GetStatus() != pipeline.Succeeded || want != "" && !strings.Contains(got.GetError(), want) {
			t.Errorf("%s: %s %s, want %q", src, got.GetStatus(), got.GetError(), want)
		}
		if want == "" && strings.Contains(src, "==") && got.GetOutputsJson() != `{"v":true}` {
			t.Errorf("%s: %s", src, got.GetOutputsJson())
		}
	}
}
