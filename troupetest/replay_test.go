package troupetest_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/troupetest"
)

const mends = `
rules:
  - match: '^write it down$'
    steps:
      - tool_calls: [{name: write_file, arguments: {path: a.txt, content: "one\n"}}]
      - {text: written}
  - match: '^have it read'
    steps:
      - tool_calls: [{name: delegate, arguments: {task: read a.txt first}}, {name: delegate, arguments: {task: read a.txt second}}]
      - {text: 'they say: ${tool.content}'}
  - match: '^read a.txt'
    steps:
      - tool_calls: [{name: read_file, arguments: {path: a.txt}}]
      - {text: 'it says ${tool.content}'}
`

// works is what the tests record and play: files, and two agents side by side in the same folder.
func works(ctx context.Context, rt *troupe.Runtime, dir string) (said []string, err error) {
	s, err := rt.Session(ctx, troupe.SessionOptions{ID: "mends", Dir: dir, Trust: troupe.Full})
	if err != nil {
		return nil, err
	}
	for i, prompt := range []string{"write it down", "have it read"} {
		r, err := s.RunOnce(ctx, fmt.Sprint("prompt", i), prompt)
		if err != nil {
			return nil, err
		}
		if r.Outcome != "done" || !r.Scripted {
			return nil, fmt.Errorf("%s: it came to %s: %s", prompt, r.Outcome, r.Reason)
		}
		said = append(said, r.Text)
	}
	return said, nil
}

func TestARecordedProgramIsPlayedAlsoWhenItIsKilledAnywhere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "works.rec")
	var was []string
	t.Run("record", func(t *testing.T) {
		rt := troupetest.Runtime(t, troupe.Options{Model: troupetest.RecordTo(t, file, troupetest.Model(t, mends), nil)})
		var err error
		if was, err = works(t.Context(), rt, t.TempDir()); err != nil {
			t.Fatal(err)
		}
	})
	var whole atomic.Int64
	troupetest.EveryKill(t, func(t *testing.T) troupetest.Work {
		dir := t.TempDir()
		return troupetest.Work{
			Options: troupe.Options{Model: troupetest.Replay(t, file, nil)},
			Do: func(ctx context.Context, rt *troupe.Runtime) error {
				said, err := works(ctx, rt, dir)
				if err != nil {
					return err
				}
				if fmt.Sprint(said) != fmt.Sprint(was) {
					return fmt.Errorf("it says %q, and was recorded with %q", said, was)
				}
				whole.Add(1)
				return nil
			},
		}
	})
	if whole.Load() < 10 {
		t.Errorf("only %d lives came to their end", whole.Load())
	}
}

func TestARecordingThatSaysMoreThanWhatHappensIsNotUsedUp(t *testing.T) {
	file := filepath.Join(t.TempDir(), "works.rec")
	t.Run("record", func(t *testing.T) {
		m := troupetest.RecordTo(t, file, troupetest.Model(t, mends), nil)
		if _, err := works(t.Context(), troupetest.Runtime(t, troupe.Options{Model: m}), t.TempDir()); err != nil {
			t.Fatal(err)
		}
	})
	m := troupetest.Replay(t, file, nil)
	rt := troupetest.Runtime(t, troupe.Options{Model: m})
	s, err := rt.Session(t.Context(), troupe.SessionOptions{Dir: t.TempDir(), Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := s.Run(t.Context(), "write it down"); err != nil || r.Text != "written" {
		t.Fatalf("%+v, %v", r, err)
	}
	left := m.(interface{ Unplayed() []string }).Unplayed()
	if len(left) != 6 || !strings.Contains(left[0], "works.rec:") || !strings.Contains(left[0], "never asked for") {
		t.Errorf("%d calls were not asked for: %q", len(left), left)
	}
	r, err := s.Run(t.Context(), "write it up")
	if err != nil || r.Outcome != "error" || !strings.Contains(r.Reason, "+   write it up") {
		t.Errorf("%+v, %v", r, err)
	}
}

// Who makes the recording anew plays nothing: nothing of it is left over.
func TestARecordingThatIsMadeAnewIsUsedUp(t *testing.T) {
	t.Setenv(troupetest.UpdateVariable, "1")
	file := filepath.Join(t.TempDir(), "works.rec")
	m := troupetest.Replay(t, file, func() troupe.Model { return troupetest.Model(t, "rules: [{reply: {text: done}}]") })
	rt := troupetest.Runtime(t, troupe.Options{Model: troupetest.Record(m)})
	s, err := rt.Session(t.Context(), troupe.SessionOptions{Dir: t.TempDir(), Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := s.Run(t.Context(), "go"); err != nil || r.Text != "done" {
		t.Fatalf("%+v, %v", r, err)
	}
	troupetest.UsedUp(t, m)
}
