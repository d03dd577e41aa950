package workspace

import (
	"strings"
	"testing"
)

// A text that follows is given up when it is too long, not once it is made: a schema may name one value thousands of times.
func TestATextThatFollowsIsNotMadeLargerThanItMayBe(t *testing.T) {
	d := &derivation{template: strings.Repeat("{a}", 5000)}
	reads, value := 0, `"`+strings.Repeat("a", 16000)+`"`
	_, err := d.value(func(string) string {
		reads++
		return value
	})
	if err == nil || !strings.Contains(err.Error(), "longer than") || reads > 2 {
		t.Errorf("%d values were read: %v", reads, err)
	}
}

func TestEmptyValuesMakeNoTextTooLong(t *testing.T) {
	d := &derivation{template: strings.Repeat("{a}", 9000) + "{b}"}
	got, err := d.value(func(name string) string { return map[string]string{"a": `""`, "b": `"end"`}[name] })
	if got != `"end"` || err != nil {
		t.Errorf("%s %v", got, err)
	}
}
