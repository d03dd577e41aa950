package chaos

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/model/script"
	"github.com/troupe-dev/troupe/persistence/badger"
	"github.com/troupe-dev/troupe/pipeline"
)

// crowd is a pipeline with an item for each of a range.
const crowd = `version: 1
name: crowd
inputs: {many: {type: integer, required: true}}
agents: {reader: {system: You read.}}
limits: {concurrency: 64}
steps:
  - {id: each, foreach: "1..inputs.many", as: n, agent: reader, prompt: "read ${{ n }}", concurrency: 64}
outputs:
  done: ${{ len(steps.each.items) }}
  sum: ${{ sum(map(steps.each.output, {int(#)})) }}
`

// peak is what the process has used of memory at most, in MiB.
func peak(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip("memory is counted through /proc: ", err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	kib := 0
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib >> 10
}

// lastHeld keeps a model from answering about the last items, so that a pipeline of few is not over before it is stopped.
type lastHeld struct {
	model.Model
	after int // items that are answered at once
	open  <-chan struct{}
}

func (h lastHeld) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	n, last := 0, req.Prompt.Messages[len(req.Prompt.Messages)-1]
	if _, err := fmt.Sscanf(last.Text, "read %d", &n); err == nil && n > h.after {
		select {
		case <-h.open:
		case <-ctx.Done():
		}
	}
	return h.Model.Stream(ctx, req)
}

func live() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

// TestAPipelineOfManyItemsRunsInBoundedMemory runs a pipeline of 10,000 items with `make scale`, of fewer else. It is looked at, its process
// ends, it is cancelled and resumed on its way. TROUPE_SCALE_ITEMS is how many.
func TestAPipelineOfManyItemsRunsInBoundedMemory(t *testing.T) {
	items := number(t, "TROUPE_SCALE_ITEMS", 400)
	text, err := script.Parse("crowd.yaml", []byte("rules:\n  - {match: '^read (\\d+)$', reply: {text: '${1}'}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := pipeline.Parse("crowd.yaml", crowd, pipeline.Options{})
	if err != nil {
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	answers := lastHeld{text.Model(), items * 3 / 4, stopped}
	dir, data := filepath.Join(t.TempDir(), "store"), t.TempDir()
	open := func() (*troupe.Runtime, func()) {
		store, err := badger.Open(t.Context(), badger.Options{Dir: dir, Ballast: -1})
		if err != nil {
			t.Fatal(err)
		}
		rt, err := troupe.New(t.Context(), troupe.Options{Model: answers, Store: store, DataDir: data})
		if err != nil {
			t.Fatal(err)
		}
		return rt, func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if err := rt.Close(ctx); err != nil {
				t.Error(err)
			}
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	rt, shut := open()
	began := time.Now()
	empty := live()
	run, err := rt.RunPipeline(t.Context(), plan, troupe.RunOptions{Inputs: map[string]any{"many": items}})
	if err != nil {
		t.Fatal(err)
	}
	reach := func(share float64) *troupe.RunView {
		t.Helper()
		for rev := uint64(0); ; {
			v, err := run.Changed(t.Context(), rev)
			if err != nil {
				t.Fatal(err)
			}
			if rev = v.GetRevision(); float64(v.GetItemsDone()) >= share*float64(items) || v.GetState() != pipeline.Running {
				return v
			}
			<-time.After(20 * time.Millisecond)
		}
	}
	say := func(v *troupe.RunView) {
		t.Logf("%s: %d of %d items done after %s; heap %.1f MiB above %.1f, peak of the process %d MiB",
			v.GetState(), v.GetItemsDone(), v.GetItems(), time.Since(began).Round(time.Millisecond), live()-empty, empty, peak(t))
	}
	say(reach(0.2))
	say(reach(0.4))
	shut()
	rt, shut = open()
	defer func() { shut() }()
	if run, err = rt.OpenRun(t.Context(), run.ID()); err != nil {
		t.Fatal(err)
	}
	say(reach(0.6))
	if _, err := run.Cancel(t.Context(), "to look"); err != nil {
		t.Fatal(err)
	}
	if v, err := run.Wait(t.Context()); err != nil || v.GetState() != pipeline.Cancelled {
		t.Fatalf("%v %v", v, err)
	}
	close(stopped)
	if _, err := run.Resume(t.Context(), nil, false); err != nil {
		t.Fatal(err)
	}
	say(reach(0.8))
	v := reach(2)
	say(v)
	if live := workersAlive(t, rt, items); live > 1 { // the session's first
		t.Errorf("%d workers are in memory after %d items", live, items)
	}
	if grown, most := live()-empty, 24+0.004*float64(items); grown > most {
		t.Errorf("the heap has grown by %.1f MiB, of at most %.1f", grown, most)
	}
	out, err := troupe.Outputs(v)
	if err != nil || fmt.Sprint(out["done"]) != fmt.Sprint(items) || out["sum"] != float64(items*(items+1)/2) {
		t.Errorf("%v %v", out, err)
	}
}

// workersAlive waits until few workers are in memory, and says how many.
func workersAlive(t *testing.T, rt *troupe.Runtime, items int) (live int) {
	t.Helper()
	for range 100 {
		reply, err := rt.Ask(t.Context(), &messages.DescribeTree{Deep: true})
		if err != nil {
			t.Fatal(err)
		}
		live = 0
		var count func(*messages.ActorView)
		count = func(v *messages.ActorView) {
			if v.GetKind() == "worker" && v.GetMemoryBytes() > 0 {
				live++
			}
			for _, child := range v.GetChildren() {
				count(child)
			}
		}
		count(reply.(*messages.Tree).GetRoot())
		if live <= 1 {
			return live
		}
		<-time.After(50 * time.Millisecond)
	}
	return live
}

// TestManySessionsUsedOnceLeaveMemory makes 50,000 sessions with `make scale` and uses each once, then as many again, in one process under
// 4 GiB; any of them answers after its own recovery alone. TROUPE_SCALE_SESSIONS is how many.
func TestManySessionsUsedOnceLeaveMemory(t *testing.T) {
	sessions := number(t, "TROUPE_SCALE_SESSIONS", 400)
	peak(t) // without /proc this is left out
	// Tests before this one in the same process may have used more: the most that it uses counts from here.
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		t.Logf("the most that the process has used is not forgotten: %v", err)
	}
	s := newSoak(t)
	began := time.Now()
	for round := range 2 {
		s.many(sessions)
		t.Logf("%d sessions used after %s; heap %.1f MiB, peak of the process %d MiB", len(s.ids), time.Since(began).Round(time.Second), live(), peak(t))
		if round == 0 {
			s.calm()
		}
	}
	t.Logf("all left: %s", s.calm())
	var took []time.Duration
	for range 200 {
		id := s.ids[rand.IntN(len(s.ids))]
		at := time.Now()
		s.ask(id)
		took = append(took, time.Since(at))
	}
	slices.Sort(took)
	t.Logf("a turn in one that had left: p50 %s, p99 %s, most %s", took[100], took[197], took[199])
	if got := peak(t); got >= 4<<10 {
		t.Errorf("the process used %d MiB", got)
	}
}
