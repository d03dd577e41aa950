package gateway

import (
	"crypto/sha256"
	"strconv"
	"testing"
)

// What is remembered of results is bounded, and the newest ones are remembered.
func TestTheOldestResultsAreForgottenFirst(t *testing.T) {
	var r answered
	add := func(id string) { r.add(id, sha256.Sum256([]byte(id))) }
	add("0")
	for i := range maxAnswered {
		add(strconv.Itoa(i)) // the first one a second time: it has one place
	}
	if len(r.sums) != maxAnswered || len(r.order) != maxAnswered {
		t.Fatalf("%d sums, %d in order", len(r.sums), len(r.order))
	}
	add("one more")
	_, oldest := r.sums["0"]
	_, second := r.sums["1"]
	_, newest := r.sums["one more"]
	if oldest || !second || !newest || len(r.sums) != maxAnswered {
		t.Errorf("the oldest is there: %t, the second: %t, the newest: %t, of %d", oldest, second, newest, len(r.sums))
	}
}
