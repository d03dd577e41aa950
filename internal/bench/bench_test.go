package bench

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/memory"
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
	var counted atomic.Int64
	o := Options{Dir: t.TempDir(), Agents: 4, Turns: 2, Long: 12, Progress: func(what string) { told = append(told, what) }, Count: func(n int) { counted.Add(int64(n)) }}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if n := counted.Load(); n < 8+12+8 {
		t.Errorf("counted %d turns", n)
	}
	if got := fmt.Sprint(told); got != "[agents flatness recovery]" {
		t.Errorf("told about %s", got)
	}
	if r.Model != "no language model is running" || r.SyncMs <= 0 {
		t.Errorf("report: %+v", r)
	}
	if a := r.Agents; a.Turns != 8 || a.PerSecond <= 0 || a.P99Ms < a.P50Ms || a.P50Ms <= 0 || a.KBActive < 0 || a.WakeMs <= 0 || a.InMemory == 0 || a.Stayed != 0 || a.MBAway <= 0 {
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

// full is a store on a disk that has run full.
type full struct{ *memory.Store }

func (full) Room() error { return fmt.Errorf("1 MiB free: %w", persistence.ErrFull) }

func TestADiskThatRunsFullEndsTheMeasurementInsteadOfHangingIt(t *testing.T) {
	store := full{memory.New()}
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	rt, err := troupe.New(t.Context(), troupe.Options{Store: store, DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	h := &house{Runtime: rt}
	ctx, end := h.watched(t.Context())
	<-ctx.Done()
	if err := end(ctx.Err()); !errors.Is(err, persistence.ErrFull) {
		t.Errorf("error: %v", err)
	}
	if err := h.close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAHouseWithRoomIsLeftAlone(t *testing.T) {
	rt, err := troupe.New(t.Context(), troupe.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := &house{Runtime: rt}
	why := errors.New("why")
	_, end := h.watched(t.Context())
	if err := errors.Join(end(nil), h.close(t.Context())); err != nil {
		t.Error(err)
	}
	if _, end := h.watched(t.Context()); !errors.Is(end(why), why) {
		t.Error("the error of the work is lost")
	}
}

// TestAProcessThatEndsByItselfWasNotKilled has one that ends before it is killed.
func TestAProcessThatEndsByItselfWasNotKilled(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("who is killed there looks as if it had exited")
	}
	c, err := begin(t.Context(), childLife, "no configuration")
	if err != nil {
		t.Fatal(err)
	}
	if line, err := c.line(); err == nil || !strings.Contains(err.Error(), "read what is to be done") {
		t.Errorf("%q, %v", line, err)
	}
	if c.kill() {
		t.Error("it had ended by itself")
	}
	if c, err = begin(t.Context(), childModel, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := c.line(); err != nil || !c.kill() {
		t.Errorf("it was killed as it served: %v", err)
	}
}
