package bench

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if Main() {
		return
	}
	goleak.VerifyTestMain(settled{m})
}

// settled waits, after the tests, for what the actor library leaves for a second after its last dead letter.
type settled struct{ *testing.M }

func (s settled) Run() int {
	defer func() { <-time.After(1200 * time.Millisecond) }()
	return s.M.Run()
}

func TestARunMeasuresEveryPartAndLosesNothing(t *testing.T) {
	var told []string
	r, err := Run(t.Context(), Options{Dir: t.TempDir(), Agents: 4, Turns: 2, Long: 12, Progress: func(what string) { told = append(told, what) }})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(told); got != "[agents flatness recovery]" {
		t.Errorf("told about %s", got)
	}
	if r.Model != "no language model is running" || r.SyncMs <= 0 {
		t.Errorf("report: %+v", r)
	}
	if a := r.Agents; a.Turns != 8 || a.PerSecond <= 0 || a.P99Ms < a.P50Ms || a.P50Ms <= 0 || a.KBActive < 0 || a.WakeMs <= 0 || a.InMemory == 0 {
		t.Errorf("agents: %+v", a)
	}
	if p := r.Flatness.Points; len(p) != 2 || p[0].Turn != 10 || p[1].Turn != 12 || p[1].Ms <= 0 {
		t.Errorf("flatness: %+v", p)
	}
	if v := r.Recovery; v.Agents != 4 || v.Turns < 8 || v.Lost != 0 || v.AllMs < v.FirstMs || v.FirstMs <= 0 || v.NextMs <= 0 {
		t.Errorf("recovery: %+v", v)
	}
}

func TestWhatIsNoReportOfATurnIsRefused(t *testing.T) {
	told := map[string]int{}
	if err := noted(told, `{"Session":"a","Turns":3}`); err != nil || told["a"] != 3 {
		t.Errorf("%v, %v", told, err)
	}
	if noted(told, "hello") == nil {
		t.Error("a word was taken")
	}
}

func TestThePointsOfAConversationGrowTenfold(t *testing.T) {
	for n, want := range map[int][]int{1: {10}, 10: {10}, 11: {10, 11}, 300: {10, 100, 300}, 1000: {10, 100, 1000}} {
		if got := points(n); !slices.Equal(got, want) {
			t.Errorf("points(%d) = %v, want %v", n, got, want)
		}
	}
}

func TestAFolderThatIsNotThereIsSaid(t *testing.T) {
	if _, err := Run(t.Context(), Options{Dir: t.TempDir() + "/none"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error: %v", err)
	}
}
