package actors

import (
	"log/slog"
	"runtime"
	"testing"
	"weak"

	"github.com/troupe-dev/troupe/messages"
)

// TestASessionThatHasStoppedKeepsNoneOfItsWorkers, though somebody may keep it.
func TestASessionThatHasStoppedKeepsNoneOfItsWorkers(t *testing.T) {
	s := newSession(&Services{Log: slog.New(slog.DiscardHandler)})
	w := weak.Make(s.add(&messages.WorkerSpawned{WorkerId: "wrk_1", ExecId: "exe_1"}))
	s.run = &runner{plan: &planBudgets{budgets: map[string]*messages.Budget{"a": {}}}}
	plan := weak.Make(s.run.plan)
	s.forget()
	runtime.GC()
	if w.Value() != nil || plan.Value() != nil {
		t.Errorf("it keeps %v and %v", w.Value(), plan.Value())
	}
	runtime.KeepAlive(s)
}
