package troupe_test

import (
	"context"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/tools/sandbox"
)

// BenchmarkTheWayThroughApproval plays the same turn where every call is decided on by rules (which allow it) and where
// nothing is asked about, in turns, on a store that syncs. "on/off" is the ratio of their medians (acceptance row 50).
func BenchmarkTheWayThroughApproval(b *testing.B) {
	for name, c := range map[string]oneCall{
		"read_file 10 KB": {"read_file", `{"path":"notes.txt"}`},
		"exec true":       {"exec", `{"command":"true"}`},
	} {
		b.Run(name, func(b *testing.B) { throughApproval(b, c) })
	}
}

func throughApproval(b *testing.B, c oneCall) {
	ctx := context.Background()
	box, err := sandbox.Detect(ctx, sandbox.Auto, sandbox.Options{CacheDir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	rt, err := troupe.New(ctx, troupe.Options{Model: c, DataDir: b.TempDir(), Sandbox: box})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := rt.Close(ctx); err != nil {
			b.Error(err)
		}
	}()
	var ways [2]*troupe.Session
	var took [2][]float64
	for n := 0; b.Loop(); n++ {
		for i := range ways {
			way := (i + n) % 2 // neither is always the first
			if n%20 == 0 {     // the conversations stay short
				ways[way] = bench(ctx, b, rt, way == 1)
			}
			began := time.Now()
			r, err := ways[way].Run(ctx, "go")
			if err != nil || r.Outcome != "done" || len(r.ToolCalls) != 1 || r.ToolCalls[0].GetStatus() != "ok" {
				b.Fatalf("%v %+v", err, r)
			}
			took[way] = append(took[way], float64(time.Since(began).Microseconds()))
		}
	}
	for way := range took {
		slices.Sort(took[way])
	}
	off, on := took[0][len(took[0])/2], took[1][len(took[1])/2]
	b.ReportMetric(on/off, "on/off")
	b.ReportMetric(off, "µs-off")
}

func bench(ctx context.Context, b *testing.B, rt *troupe.Runtime, on bool) *troupe.Session {
	b.Helper()
	o := troupe.SessionOptions{Dir: b.TempDir(), Trust: troupe.Full}
	if on {
		o.Trust, o.Rules = troupe.Restricted, []string{"read_file(notes.txt)", "exec(true)"}
	}
	if err := os.WriteFile(filepath.Join(o.Dir, "notes.txt"), []byte(strings.Repeat("what was seen on this day\n", 400)), 0o600); err != nil {
		b.Fatal(err)
	}
	s, err := rt.Session(ctx, o)
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// oneCall is a model that makes one call in each turn, and is content with its result.
type oneCall struct{ tool, args string }

func (c oneCall) Stream(_ context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	last := req.Prompt.Messages[len(req.Prompt.Messages)-1]
	return func(yield func(model.Event, error) bool) {
		if last.Role != messages.User {
			_ = yield(model.Event{Kind: model.Text, Text: "done"}, nil) && yield(model.Event{Kind: model.Finish, Reason: "stop"}, nil)
			return
		}
		_ = yield(model.Event{Kind: model.CallStart, CallID: fmt.Sprint("c", len(req.Prompt.Messages)), Name: c.tool}, nil) &&
			yield(model.Event{Kind: model.CallArgs, Text: c.args}, nil) &&
			yield(model.Event{Kind: model.Finish, Reason: "tool_calls"}, nil)
	}
}
