package troupe_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/pipeline"
)

// A process that ends after any append of any example loses nothing: the next one, told to go on, comes to the outputs that the example
// names, repeats no step, item or attempt that was over, and what was spent is what the journals say was settled. Of the example with 500
// files, which makes thousands of appends, some are cut; with -short, of the others, too.
func TestExamplesCutAfterEveryAppendComeToTheirOutputs(t *testing.T) {
	const dir = "examples/pipelines"
	models, err := os.ReadFile(filepath.Join(dir, "models.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		_, want, ok := strings.Cut(string(text), "\n# outputs: ")
		if !ok {
			continue // of others
		}
		seen++
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			budgeted := strings.Replace(string(text), "version: 1\n", "version: 1\nbudget: {tokens: 1000000000}\n", 1)
			p, err := pipeline.Parse(filepath.Base(name), budgeted, pipeline.Options{Load: func(file string) ([]byte, error) { return os.ReadFile(filepath.Join(dir, file)) }})
			if err != nil {
				t.Fatal(err)
			}
			cutAll(t, &cutExample{plan: p, models: string(models), want: want})
		})
	}
	if seen < 11 {
		t.Errorf("%d examples", seen)
	}
}

type cutExample struct {
	plan         *pipeline.Plan
	models, want string
}

func cutAll(t *testing.T, x *cutExample) {
	stride := 1
	switch {
	case x.plan.Root.Name == "extract":
		stride = 733 // a prime: it meets every kind of append
		if testing.Short() {
			stride = 1999
		}
	case testing.Short():
		stride = 7
	}
	for cut := 1; ; cut += stride {
		store, dir := memoryOf(t), exampleFolder(t, x.plan.Root.Name)
		id := x.until(t, store, dir, cut)
		if id == "" {
			t.Logf("%d appends or less", cut)
			return
		}
		x.onwards(t, store, dir, id, cut)
		began(t, store, id, cut)
		if t.Failed() {
			return
		}
	}
}

// until runs the example in a process that ends after so many appends; "": it was over before.
func (x *cutExample) until(t *testing.T, store persistence.Store, dir string, cut int) string {
	t.Helper()
	m := newMortal(store, cut)
	rt, err := troupe.New(t.Context(), troupe.Options{Store: m, DataDir: t.TempDir(), Model: scripted(x.models), Sandbox: unconfined(t)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer func() {
		stop()
		end, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 0)
		defer cancel()
		_ = rt.Close(end) // as much of it as a kill leaves
	}()
	began := make(chan *troupe.Run, 1)
	go func() {
		if run, err := rt.RunPipeline(ctx, x.plan, troupe.RunOptions{Dir: dir, Trust: troupe.Full, Inputs: exampleInputs(x.plan.Root.Name)}); err == nil {
			began <- run
		}
	}()
	var run *troupe.Run
	select {
	case run = <-began:
	case <-m.dead:
		select {
		case run = <-began: // its answer is on its way: the first append is that of the run
		case <-time.After(30 * time.Second):
			t.Fatalf("cut %d: it ended before the run was there", cut)
		}
	}
	over := make(chan struct{})
	go func() {
		if _, err := run.Wait(ctx); err == nil {
			close(over)
		}
	}()
	for {
		asked, _ := rt.Approvals(ctx)
		for _, a := range asked {
			go func() { _ = rt.ResolveApproval(ctx, a.GetApprovalId(), troupe.Answer{Decision: troupe.Approved}) }()
		}
		select {
		case <-m.dead:
			return run.ID()
		case <-over:
			return ""
		case <-time.After(5 * time.Millisecond): // of some questions there is no event
		}
	}
}

// onwards goes on with the run in the next process.
func (x *cutExample) onwards(t *testing.T, store persistence.Store, dir, id string, cut int) {
	t.Helper()
	rt, err := troupe.New(t.Context(), troupe.Options{Store: store, DataDir: t.TempDir(), Model: scripted(x.models), Sandbox: unconfined(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := rt.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	run, err := rt.OpenRun(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run.Resume(t.Context(), nil, false); err != nil {
		t.Fatal(err)
	}
	v := through(t, rt, run)
	if got := v.GetOutputsJson(); !sameJSON(t, got, x.want) {
		t.Errorf("cut after append %d: %s: %s: outputs %s, want %s", cut, v.GetState(), v.GetError(), got, x.want)
	}
	x.settled(t, rt, store, run, cut)
}

// settled sees that each reservation was settled once, and that the budget says the sum.
func (x *cutExample) settled(t *testing.T, rt *troupe.Runtime, store persistence.Store, run *troupe.Run, cut int) {
	t.Helper()
	session, err := rt.Open(t.Context(), run.Session())
	if err != nil {
		t.Fatal(err)
	}
	workers, err := session.Workers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var spent int64
	for _, w := range workers {
		open, tokens, err := ledgerOf(t, store, w.ID())
		if err != nil || open != 0 {
			t.Errorf("cut after append %d: %d calls of worker %s are not settled, %v", cut, open, w.ID(), err)
		}
		spent += tokens
	}
	b, err := session.Budget(t.Context())
	if err != nil || b.GetSpent().GetTokens() != spent || b.GetReserved().GetTokens() != 0 || spent == 0 {
		t.Errorf("cut after append %d: the budget is %v, and the journals say %d tokens; %v", cut, b, spent, err)
	}
}

// ledgerOf is how many calls of a worker are not settled, and what it has spent, by its journal.
func ledgerOf(t *testing.T, store persistence.Store, worker string) (open int, tokens int64, err error) {
	t.Helper()
	err = store.Read(t.Context(), messages.WorkerStream(worker), 1, func(e persistence.Entry) error {
		f, err := messages.WorkerFactIn(e.Record)
		switch f := f.(type) {
		case *messages.BudgetReserved:
			open++
		case *messages.BudgetSettled:
			if tokens += f.GetTokens(); f.GetGenId() != "" {
				open--
			}
		}
		if open < 0 || open > 1 {
			return fmt.Errorf("%d calls are open at record %d", open, e.Record.GetSeq())
		}
		return err
	})
	return open, tokens, err
}
