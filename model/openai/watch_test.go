package openai

import (
	"errors"
	"sync"
	"testing"
	"time"
)

// TestAWatchThatHasFiredIsNotUsedAgain: its function may run late, and would end the request of another.
func TestAWatchThatHasFiredIsNotUsedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		fires, again, kept bool
	}{
		"it waits":                       {false, false, true},
		"it was set again":               {false, true, true},
		"it has fired":                   {true, false, false},
		"it has fired and was set again": {true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			w, over, d := newWatch(), make(chan struct{}), time.Hour
			of := &try{ends: time.Now().Add(time.Hour), end: func() { close(over) }}
			if c.fires {
				d = 0
			}
			w.begin(of, d)
			if c.fires {
				<-over
			}
			if c.again {
				w.again(time.Hour)
			}
			var pool sync.Pool
			w.end(&pool)
			if kept := w.of == nil; kept != c.kept { // a pool may forget what it was given
				t.Errorf("kept: %t", kept)
			}
			if got := pool.Get(); got != nil && !c.kept {
				t.Error("it is there for the next one")
			}
			if w.timer.Stop() {
				t.Error("it is armed still")
			}
			if errors.Is(of.late(), errSlow) != c.fires {
				t.Errorf("the request ended with %v", of.late())
			}
		})
	}
}
