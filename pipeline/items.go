package pipeline

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/troupe-dev/troupe/messages"
)

// maxItems is how many items a step has at most, and maxAllItems all steps of a run together, those of the pipelines that it runs among them.
const (
	maxItems    = 10_000
	maxAllItems = 100_000
)

// maxKey is how long the key of an item may be, in bytes.
const maxKey = 200

// counts sees that the run may have so many items more.
func (d *decider) counts(n int) error {
	if d.items+n > maxAllItems {
		return fmt.Errorf("the run would have %d items, and has at most %d; make several runs of it", d.items+n, maxAllItems)
	}
	d.items += n
	return nil
}

// itemsOf are what a step works on.
func (d *decider) itemsOf(ss *StepState) ([]*messages.RunItem, error) {
	st := ss.Step
	switch {
	case st.Kind == ParallelStep:
		var out []*messages.RunItem
		for i, agent := range st.Parallel {
			out = append(out, &messages.RunItem{Key: unique(out, agent, i), ValueJson: encodeJSON(agent)})
		}
		return out, nil
	case st.ForEach == nil && st.Repeat != nil, st.Kind == GroupStep:
		return nil, nil // they come one by one
	case st.ForEach == nil:
		return []*messages.RunItem{{}}, nil
	}
	list, of, err := d.list(ss)
	if err != nil {
		return nil, fmt.Errorf("foreach: %w", err)
	}
	if len(list) > maxItems {
		return nil, fmt.Errorf("foreach: %d items, and a step has at most %d", len(list), maxItems)
	}
	seen := make(map[string]bool, len(list))
	out := make([]*messages.RunItem, 0, len(list))
	var env map[string]any
	for i, item := range list {
		key := keyOf(item, i)
		if st.Key != nil {
			if env == nil {
				env = d.env(ss, nil)
			}
			env[st.As], env["index"] = item, i
			if key, err = d.key(st, env); err != nil {
				return nil, fmt.Errorf("key of item %d: %w", i, err)
			}
		}
		if st.Kind == NestedStep && strings.Contains(key, "]/") { // the paths of its steps could be those of others
			key = fmt.Sprint(i)
		}
		for seen[key] { // another one may be called as the next try is
			key = fmt.Sprintf("%s#%d", key, i)
		}
		seen[key] = true
		ri := &messages.RunItem{Key: key}
		if of[i] != nil {
			ri.OfStep, ri.OfIndex = of[i].GetOfStep(), of[i].GetOfIndex()
		} else {
			ri.ValueJson = encodeJSON(item)
		}
		out = append(out, ri)
	}
	return out, nil
}

func (d *decider) key(st *Step, env map[string]any) (string, error) {
	k, err := st.Key.eval(env)
	if err != nil {
		return "", err
	}
	key := Show(k)
	if len(key) > maxKey {
		return "", fmt.Errorf("%s has %d bytes, and a key at most %d", clip(key), len(key), maxKey)
	}
	return key, nil
}

// list evaluates foreach. What the list holds of steps.X.items is not written down once more: of names the item that is meant, and its value
// is what is seen of that. The rest is written down, and may be maxValue together.
func (d *decider) list(ss *StepState) (list []any, of []*messages.RunItem, err error) {
	each := ss.Step.ForEach
	v, err := each.raw(d.env(ss, nil))
	if err != nil {
		return nil, nil, err
	}
	made, ok := v.([]any)
	if !ok {
		if v, err = plain(v); err != nil { // a list of another type becomes one of any
			return nil, nil, err
		}
		if made, ok = v.([]any); !ok {
			return nil, nil, fmt.Errorf("%s gives %s, and not a list", strings.TrimSpace(each.Src), clip(Show(v)))
		}
	}
	known := ss.scope.shown()
	of = make([]*messages.RunItem, len(made))
	var rest []any
	for i, item := range made {
		m, ok := item.(map[string]any)
		if of[i] = known[address(m)]; !ok || of[i] == nil {
			of[i] = nil
			rest = append(rest, item)
		}
	}
	if v, err = plain(rest); err != nil {
		return nil, nil, fmt.Errorf("%w; steps.X.items, and what filter leaves of them, may be longer", err)
	}
	rest, _ = v.([]any)
	list = make([]any, len(made))
	for i := range made {
		if of[i] != nil {
			list[i] = made[i]
			continue
		}
		list[i], rest = rest[0], rest[1:]
	}
	return list, of, nil
}

// shown is where the items stand that expressions of a pipeline see.
func (sc *scope) shown() map[uintptr]*messages.RunItem {
	out := make(map[uintptr]*messages.RunItem)
	for _, ss := range sc.steps {
		items, _ := ss.seen["items"].([]any)
		for i, item := range items {
			m, _ := item.(map[string]any)
			out[address(m)] = &messages.RunItem{OfStep: ss.Path, OfIndex: int32(i)} //nolint:gosec // at most maxItems
		}
	}
	return out
}

// address tells a map from every other one; 0 for none.
func address(m map[string]any) uintptr {
	if m == nil {
		return 0
	}
	return reflect.ValueOf(m).Pointer()
}

// referred is the value of an item that is one of another step, as that is seen now.
func (ss *StepState) referred(item *messages.RunItem) any {
	for _, of := range ss.scope.steps {
		if of.Path != item.GetOfStep() {
			continue
		}
		if of.seen == nil {
			of.seen = of.view()
		}
		if items, _ := of.seen["items"].([]any); int(item.GetOfIndex()) < len(items) && item.GetOfIndex() >= 0 {
			return items[item.GetOfIndex()]
		}
	}
	return nil
}

func unique(items []*messages.RunItem, key string, i int) string {
	for _, it := range items {
		if it.GetKey() == key {
			return fmt.Sprintf("%s#%d", key, i)
		}
	}
	return key
}

// keyOf names an item that has no key: by itself when it is a short text, else by its place.
func keyOf(item any, i int) string {
	switch v := item.(type) {
	case string:
		if v != "" && len(v) <= maxKey && !strings.ContainsAny(v, "\n[]") {
			return v
		}
	case map[string]any:
		for _, k := range []string{"id", "key", "name", "path"} {
			if t, ok := v[k].(string); ok && t != "" && len(t) <= maxKey && !strings.ContainsAny(t, "\n[]") {
				return t
			}
		}
	}
	return fmt.Sprint(i)
}
