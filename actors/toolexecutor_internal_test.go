package actors

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// TestAnExecutorThatPanicsOnACallAnswersItOnceAndEnds: its services lack what starts goroutines.
func TestAnExecutorThatPanicsOnACallAnswersItOnceAndEnds(t *testing.T) {
	var log bytes.Buffer
	svc := &Services{Log: slog.New(slog.NewTextHandler(&log, nil))}
	sys := act.NewSystem(slog.New(slog.DiscardHandler))
	pid := sys.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return newToolExecutor(svc) }))
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	reply, err := act.Ask[*messages.ToolReply](ctx, sys, pid, &messages.Execute{ExecId: "exe_1", CallId: "c1", Tool: "act"})
	if err != nil || reply.GetErrorCode() != tools.CodeInternalError || reply.GetExecId() != "exe_1" || reply.GetStatus() != messages.ToolFinished_ERROR {
		t.Errorf("answered %v (%v)", reply, err)
	}
	if err := sys.Root.StopFuture(pid).Wait(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "tool executor panicked"); n != 1 || !strings.Contains(log.String(), "toolexecutor.go") {
		t.Errorf("logged %d times: %s", n, log.String())
	}
}
