package actors

import (
	"encoding/json"
	"testing"
)

func TestRowsKeepTheNumbersThatTheyHave(t *testing.T) {
	args, err := csvArguments(`{"path": "p.csv", "rows": [{"id": 9007199254740993, "x": 1.50}, {"id": 12345678901234567890}]}`)
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Path, Content string }
	if err := json.Unmarshal([]byte(args), &got); err != nil {
		t.Fatal(err)
	}
	if got.Path != "p.csv" || got.Content != "id,x\n9007199254740993,1.50\n12345678901234567890,\n" {
		t.Errorf("%q: %q", got.Path, got.Content)
	}
}
