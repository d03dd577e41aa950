package actors

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// callFields are the fields of a call's workspace, as its tool comes at them: it asks the Workspace actor, off every mailbox.
type callFields struct {
	run   *run
	edits atomic.Int64
}

// Set implements tools.Fields.
func (f *callFields) Set(ctx context.Context, name string, value json.RawMessage) (*messages.FieldSet, error) {
	m := f.run.m
	id := m.GetExecId()
	if n := f.edits.Add(1); n > 1 {
		id = fmt.Sprintf("%s#%d", id, n)
	}
	done, err := askFields[*messages.FieldUpdated](ctx, f.run.sys, m.GetWorkspace().GetId(), &messages.SetField{
		Field: name, Value: string(value), ExecId: id, By: m.GetWorkerId(), SessionId: m.GetSessionId(),
	})
	if err != nil {
		return nil, notSet(ctx, err)
	}
	return done.GetSet(), nil
}

// notSet words what came of an edit that was not answered with what it led to. One that the Workspace did not answer may be made.
func notSet(ctx context.Context, err error) error {
	var fail *messages.Failure
	switch {
	case errors.As(err, &fail) && fail.GetCode() != messages.CodeUnavailable:
		return tools.Errorf(fail.GetCode(), "%s", fail.GetMessage())
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	}
	return tools.ErrorUnknown("Error: Workspace not available: %v", err)
}
