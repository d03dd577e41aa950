package troupe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// NamedTask is a unit of work of the program's own with typed input and output, beside those of the runtime: an agent's (Runtime.Do) and a compaction
// (Worker.Compact). A worker runs it in its place in the queue, journals it with its input and its output, and ends it when it is cancelled.
type NamedTask[In, Out any] struct{ tool Tool }

// maxOutput bounds what a task may come to, as JSON.
const maxOutput = 1 << 20

// NewTask makes a task of a function. The spec names it, describes it and says what its effects are (tools.Spec.Effect), and that decides what
// becomes of a run that a crash cuts off: one that only reads, or that may be repeated, is run again, and of any other the outcome is unknown.
// In is as the arguments of tools.Func, Out what encoding/json takes.
func NewTask[In, Out any](spec tools.Spec, fn func(tc *tools.Context, in In) (Out, error)) (*NamedTask[In, Out], error) {
	if fn == nil {
		return nil, fmt.Errorf("make task %s: its function is nil", spec.Name)
	}
	var unsupported *json.UnsupportedTypeError
	if _, err := json.Marshal(new(Out)); errors.As(err, &unsupported) {
		return nil, fmt.Errorf("make task %s: what it comes to cannot be written down: %w", spec.Name, err)
	}
	t, err := tools.Func(spec, func(tc *tools.Context, in In) (*tools.Result, error) {
		out, err := fn(tc, in)
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(out)
		if err != nil {
			return nil, fmt.Errorf("encode what task %s came to: %w", spec.Name, err)
		}
		if len(text) > maxOutput {
			return nil, fmt.Errorf("task %s came to %d bytes, and may come to %d: give a file's name instead", spec.Name, len(text), maxOutput)
		}
		return &tools.Result{Content: string(text)}, nil
	})
	if err != nil {
		return nil, fmt.Errorf("make task %s: %w", spec.Name, err)
	}
	return &NamedTask[In, Out]{t}, nil
}

// Tool goes into Options.Tools, so that workers know the task. Agents that may use it call it as any tool.
func (t *NamedTask[In, Out]) Tool() Tool { return t.tool }

// Run runs the task and returns what it came to. The same id again in the same worker is the same run, also in a later process: it is waited for, or its outcome is
// returned, and nothing is done twice. An empty id is a new run. A run that did not succeed is a *messages.Failure with the code of the call.
// When ctx ends nobody waits for the run any more, and it goes on; Worker.Cancel ends it.
func (t *NamedTask[In, Out]) Run(ctx context.Context, w *Worker, id string, in In) (Out, error) {
	var out Out
	name := t.tool.Spec().Name
	if w == nil || w.rt == nil {
		return out, fmt.Errorf("run task %s: there is no worker", name)
	}
	if id == "" {
		id = messages.NewID("call_")
	}
	raw, err := json.Marshal(in)
	if err != nil {
		return out, fmt.Errorf("encode the input of task %s: %w", name, err)
	}
	r, err := ask[*messages.ToolReply](ctx, w.rt, w.session, &messages.CallTool{WorkerId: w.id, Tool: name, Arguments: string(raw), CallId: id})
	if err != nil {
		return out, fmt.Errorf("run task %s: %w", name, err)
	}
	if r.GetStatus() != messages.ToolFinished_OK {
		return out, fmt.Errorf("run task %s: %w", name, messages.Fail(codeOf(r), r.GetContent(), ""))
	}
	if err := json.Unmarshal([]byte(r.GetContent()), &out); err != nil {
		return out, fmt.Errorf("decode what task %s came to: %w", name, err)
	}
	return out, nil
}

// codeOf is the code of a call that did not succeed.
func codeOf(r *messages.ToolReply) string {
	if code := r.GetErrorCode(); code != "" {
		return code
	}
	return messages.CodeInternal
}
