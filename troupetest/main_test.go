package troupetest_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(settled{m}) }

// settled waits, after the tests, for what the actor library leaves for a second after its last dead letter.
type settled struct{ *testing.M }

func (s settled) Run() int {
	defer func() { <-time.After(1200 * time.Millisecond) }()
	return s.M.Run()
}
