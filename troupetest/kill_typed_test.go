package troupetest_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/pipeline"
	"github.com/troupe-dev/troupe/pipeline/build"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/troupetest"
)

type (
	order struct {
		Item string `json:"item" desc:"What is ordered."`
	}
	receipt struct {
		Item string `json:"item"`
		Good bool   `json:"good"`
	}
)

// placing is a task that counts how often it runs.
func placing(t *testing.T, effect messages.Effect_Class, runs *atomic.Int64) *troupe.NamedTask[order, receipt] {
	t.Helper()
	task, err := troupe.NewTask(tools.Spec{Name: "place", Description: "Places an order.", Effect: effect, NoWorkspace: true},
		func(_ *tools.Context, o order) (receipt, error) {
			runs.Add(1)
			return receipt{o.Item, true}, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	return task
}

// TestATypedTaskThatIsKilledAnywhereIsDoneOrInDoubtAndNeverTwice has one that may not run twice, and one that may.
func TestATypedTaskThatIsKilledAnywhereIsDoneOrInDoubtAndNeverTwice(t *testing.T) {
	for _, effect := range []messages.Effect_Class{messages.Effect_AT_MOST_ONCE, messages.Effect_IDEMPOTENT} {
		t.Run(effect.String(), func(t *testing.T) {
			troupetest.EveryKill(t, func(t *testing.T) troupetest.Work {
				var runs atomic.Int64
				task := placing(t, effect, &runs)
				return troupetest.Work{
					Options: troupe.Options{Model: troupetest.Model(t, charges), Tools: []troupe.Tool{task.Tool()}},
					Do: func(ctx context.Context, rt *troupe.Runtime) error {
						s, err := rt.Session(ctx, troupe.SessionOptions{ID: "shop", Rules: []string{"place"}})
						if err != nil {
							return err
						}
						r, err := task.Run(ctx, s.Worker, "order-7", order{"tea"})
						var f *troupe.Failure
						switch {
						case effect == messages.Effect_AT_MOST_ONCE && errors.As(err, &f) && f.GetCode() == tools.CodeInterrupted:
							return nil // it may have run, and is not run again
						case err != nil:
							return err
						case r != (receipt{"tea", true}):
							return fmt.Errorf("the receipt is %+v", r)
						}
						return nil
					},
					Check: func(t *testing.T) {
						switch n := runs.Load(); {
						case effect == messages.Effect_AT_MOST_ONCE && n > 1: // none: it was killed before it began, which nobody can know
							t.Errorf("it ran %d times", n)
						case effect != messages.Effect_AT_MOST_ONCE && n == 0:
							t.Error("it did not run")
						}
					},
				}
			})
		})
	}
}

const judge = `
rules:
  - {match: '^Is (\w+) good', reply: {text: '{"item": "${1}", "good": true}'}}
`

// TestAPipelineOfGoTypesThatIsKilledAnywhereComesToItsTypedOutputs builds one of tasks and agents.
func TestAPipelineOfGoTypesThatIsKilledAnywhereComesToItsTypedOutputs(t *testing.T) {
	troupetest.EveryKill(t, func(t *testing.T) troupetest.Work {
		var runs atomic.Int64
		task := placing(t, messages.Effect_IDEMPOTENT, &runs)
		p := build.New("shop")
		items := build.Param[[]string](p, "items", "what is ordered")
		each := build.ForEach[string, receipt](p, "each", items, func(item build.Ref[string]) build.Ask {
			return build.Ask{Prompt: build.Text("Is ", item, " good?"), Key: item}
		})
		placed := build.Tool(p, "placed", "place", map[string]any{"item": build.Expr[string]("%s[0].item", each.Output())}, build.Rules{})
		all := build.Return(p, "all", each.Output())
		one := build.Return(p, "one", placed.Output())
		plan, err := p.Plan(pipeline.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return troupetest.Work{
			Options: troupe.Options{Model: troupetest.Model(t, judge), Tools: []troupe.Tool{task.Tool()}},
			Do: func(ctx context.Context, rt *troupe.Runtime) error {
				run, err := rt.RunPipeline(ctx, plan, troupe.RunOptions{ID: "shop-1", Inputs: map[string]any{"items": []string{"tea", "rice"}}, Rules: []string{"place"}})
				if err != nil {
					return err
				}
				v, err := run.Wait(ctx)
				if err != nil {
					return err
				}
				got, err := all.From(v.GetOutputsJson())
				if err != nil || len(got) != 2 || got[1] != (receipt{"rice", true}) {
					return fmt.Errorf("%s: %+v, %w", v.GetError(), got, err)
				}
				said, err := one.From(v.GetOutputsJson())
				if err != nil || said != `{"item":"tea","good":true}` {
					return fmt.Errorf("placed: %q, %w", said, err)
				}
				return nil
			},
		}
	})
}
