package troupe_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

const (
	largeFiles = 3
	largeFile  = 900 << 10 // bytes, nearly all of which want an escape in JSON
)

// writesMuch writes large files in one answer.
type writesMuch struct{}

func (writesMuch) Stream(_ context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	answered := false
	for _, m := range req.Prompt.Messages {
		answered = answered || m.Role == messages.Assistant
	}
	return func(yield func(model.Event, error) bool) {
		if answered {
			_ = yield(model.Event{Kind: model.Text, Text: "done"}, nil) && yield(model.Event{Kind: model.Finish, Reason: "stop"}, nil)
			return
		}
		for n := range largeFiles {
			args, _ := json.Marshal(map[string]string{"path": fmt.Sprint(n), "content": strings.Repeat("\"\n", largeFile/2)})
			if !yield(model.Event{Kind: model.CallStart, Index: n, CallID: fmt.Sprint("c", n), Name: "write_file"}, nil) ||
				!yield(model.Event{Kind: model.CallArgs, Index: n, Text: string(args)}, nil) {
				return
			}
		}
		_ = yield(model.Event{Kind: model.Finish, Reason: "tool_calls"}, nil)
	}
}

// TestLargeCallsAreListedInPartAndAskedWhole asks about more than the store takes in one listing.
func TestLargeCallsAreListedInPartAndAskedWhole(t *testing.T) {
	ctx := t.Context()
	dir, asked, goOn := t.TempDir(), make(chan *troupe.Approval, largeFiles), make(chan struct{})
	rt, err := troupe.New(ctx, troupe.Options{Model: writesMuch{}, Approve: func(_ context.Context, a *troupe.Approval) troupe.Answer {
		asked <- a
		<-goOn
		return troupe.Answer{Decision: troupe.Approved}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(ctx)
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		r, err := s.Run(ctx, "go")
		if err == nil && r.Outcome != "done" {
			err = fmt.Errorf("outcome %s: %s", r.Outcome, r.Text)
		}
		ended <- err
	}()
	whole := 0
	for range largeFiles {
		select {
		case a := <-asked:
			var args struct{ Content string }
			if err := json.Unmarshal([]byte(a.GetArguments()), &args); err == nil && len(args.Content) == largeFile {
				whole++
			}
		case err := <-ended:
			t.Fatal("it ended before it asked: ", err)
		}
	}
	if whole != largeFiles {
		t.Errorf("the program was shown %d calls whole", whole)
	}
	all, err := rt.Approvals(ctx)
	if err != nil || len(all) != largeFiles {
		t.Fatalf("%d are listed, %v", len(all), err)
	}
	for _, a := range all {
		var args map[string]string
		if err := json.Unmarshal([]byte(a.GetArguments()), &args); err != nil || args["path"] == "" || !strings.Contains(args["content"], "more bytes are not listed") {
			t.Errorf("listed with %.200q: %v", a.GetArguments(), err)
		}
		if n := len(a.GetArguments()) + len(a.GetPreview()); n > 512<<10 {
			t.Errorf("an entry of %d bytes", n)
		}
	}
	close(goOn)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	for n := range largeFiles {
		if info, err := os.Stat(filepath.Join(dir, fmt.Sprint(n))); err != nil || info.Size() != largeFile {
			t.Errorf("%v %v", info, err)
		}
	}
}
