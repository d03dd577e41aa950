package pipeline

import (
	"encoding/json"
	"errors"

	"github.com/troupe-dev/troupe/messages"
)

// base is what every expression of a pipeline may name.
func (d *decider) base(sc *scope) map[string]any {
	vars, err := decodeMap(d.s.Started.GetEnvJson())
	if err != nil {
		vars = map[string]any{} // it was written by encodeJSON
	}
	seen := make(map[string]any, len(sc.file.Env))
	for _, name := range sc.file.Env { // of a nested pipeline, those that it lists itself
		if v, ok := vars[name]; ok {
			seen[name] = v
		}
	}
	read := d.w.Read
	if read == nil {
		read = func(string) (string, error) { return "", errors.New("there is no folder to read from") }
	}
	return map[string]any{
		"inputs": sc.inputs, "env": seen, "run": map[string]any{"id": d.s.ID, "name": d.s.Plan.Root.Name}, readName: read,
	}
}

// env is what the expressions of a step may name, for one of its items or for none.
func (d *decider) env(ss *StepState, it *ItemState) map[string]any {
	env := d.base(ss.scope)
	env["steps"] = ss.scope.view(ss.scope.file.stepIDs())
	env["index"], env["key"] = 0, ""
	if it != nil {
		env["index"], env["key"] = it.Index, it.Key
		if ss.Step.ForEach != nil {
			env[ss.Step.As] = it.Value
		}
	}
	if ss.Step.Kind == GroupStep && it != nil {
		env["member"], env["round"] = it.speaker()
	}
	if ss.Step.Repeat != nil {
		env["last"] = nil
		if it != nil && it.Index > 0 && it.Index <= len(ss.Items) {
			env["last"] = ss.Items[it.Index-1].Output
		}
	}
	return env
}

// view is what expressions see of the steps that are over. A step that was skipped is nothing. What is seen of one is made once, for all
// items and steps that come after it.
func (sc *scope) view(ids []string) map[string]any {
	out := make(map[string]any, len(ids))
	for _, id := range ids {
		ss := sc.steps[id]
		if ss.Status != Succeeded && ss.Status != Failed {
			out[id] = nil
			continue
		}
		if ss.seen == nil {
			ss.seen = ss.view()
		}
		out[id] = ss.seen
	}
	return out
}

// view is what expressions see of a step that is over.
func (ss *StepState) view() map[string]any {
	items := make([]any, len(ss.Items))
	usage := &messages.Usage{}
	var last *messages.Lineage
	for i, it := range ss.Items {
		used := it.used()
		items[i] = map[string]any{
			"key": it.Key, "index": it.Index, "status": it.Status, "output": it.Output, "error": it.Error, "value": it.Value,
			"usage": usageView(used), "conversation": lineageView(it.Lineage),
		}
		usage, last = addUsage(usage, used), it.Lineage
	}
	return map[string]any{
		"output": ss.Output, "items": items, "status": ss.Status, "error": ss.Error, "usage": usageView(usage), "conversation": lineageView(last),
	}
}

// unseen has what expressions see of a step, and of those that run it, made anew.
func (ss *StepState) unseen() {
	for {
		ss.seen = nil
		if ss.scope.owner == nil {
			return
		}
		ss = ss.scope.owner.step
	}
}

// used is what an item has used, with the steps of the pipeline that it is.
func (it *ItemState) used() *messages.Usage {
	if it.inner == nil {
		return it.Usage
	}
	sum := it.Usage
	it.inner.each(func(ss *StepState) { sum = addUsage(sum, ss.Usage()) })
	return sum
}

func usageView(u *messages.Usage) map[string]any {
	return map[string]any{
		"input_tokens": int(u.GetInputTokens()), "output_tokens": int(u.GetOutputTokens()), "cost_usd": float64(u.GetCostMicroUsd()) / 1e6,
	}
}

func lineageView(l *messages.Lineage) any {
	if l == nil {
		return nil
	}
	return map[string]any{"conversation": l.GetConversation(), "seq": int(l.GetSeq())} //nolint:gosec // a count of records
}

// encodeJSON writes a value that plain or decodeJSON gave: it cannot fail.
func encodeJSON(v any) string {
	if v == nil {
		return ""
	}
	b, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(b)
}
