package troupe

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// NeededStream names the stream that an entry of the store's index is about, "" when it is about none: an
// entry without its stream leads nowhere.
func NeededStream(indexKey string) string {
	kind, rest, _ := strings.Cut(indexKey, "/")
	switch kind {
	case "ses":
		return messages.SessionStream(rest)
	case "wrk":
		_, worker, _ := strings.Cut(rest, "/")
		return messages.WorkerStream(worker)
	case "cnv":
		_, id, _ := strings.Cut(rest, "/")
		return messages.ConversationStream(id)
	}
	return ""
}

// settle makes the data directory ready, and reads what is looked up in memory.
func (rt *Runtime) settle(ctx context.Context) error {
	if err := actors.Relist(ctx, rt.svc); err != nil {
		return err
	}
	if err := rt.sweep(ctx); err != nil {
		return fmt.Errorf("clear what was left half-written: %w", err)
	}
	return rt.access.load(ctx, rt.svc)
}

// verifyIndex finds listing entries that lead nowhere.
func (rt *Runtime) verifyIndex(ctx context.Context, out *messages.Verified) error {
	var lost []string
	err := rt.svc.Store.Index(ctx, "", func(key string, _ []byte) error {
		stream := NeededStream(key)
		if stream == "" {
			return nil
		}
		head, err := rt.svc.Store.Head(ctx, stream)
		if err == nil && head == 0 {
			lost = append(lost, fmt.Sprintf("index entry %s is about stream %s, which does not exist", key, stream))
		}
		return nil // a stream that does not read was found already
	})
	if errors.Is(err, persistence.ErrCorrupt) {
		out.Findings = append(out.Findings, &messages.Finding{Problem: err.Error()})
		err = nil
	}
	if err != nil {
		return fmt.Errorf("verify the index: %w", err)
	}
	for _, problem := range lost {
		out.Findings = append(out.Findings, &messages.Finding{Problem: problem})
	}
	return nil
}

// progresser is a store that says how far a long work of its has come.
type progresser interface {
	Progress() int64
}

// Progress counts the records that Verify has looked at since the runtime began, 0 when its store does not say.
func (rt *Runtime) Progress() int64 {
	if p, ok := rt.svc.Store.(progresser); ok {
		return p.Progress()
	}
	return 0
}

// room refuses what begins something new while the store has no room for it. What was begun before may end.
func (rt *Runtime) room(m proto.Message) error {
	store, ok := rt.svc.Store.(persistence.Roomer)
	if !ok || !begins(m) {
		return nil
	}
	switch err := store.Room(); {
	case errors.Is(err, persistence.ErrFull):
		return messages.Fail(messages.CodeFull, err.Error(), "make room on the disk; data.reserve says how much is kept free")
	case err != nil:
		return messages.Fail(messages.CodeUnavailable, err.Error(), "try again")
	}
	return nil
}

// Room is nil when there is room for something new to be begun; else it says what the disk lacks.
func (rt *Runtime) Room() error {
	if store, ok := rt.svc.Store.(persistence.Roomer); ok {
		return store.Room()
	}
	return nil
}

// begins says whether a message asks for a session, a turn, a worker or a call that is not there yet.
func begins(m proto.Message) bool {
	to, ok := m.(*messages.ToSession)
	if !ok {
		_, creates := m.(*messages.CreateSession)
		return creates
	}
	switch to.GetCommand().(type) {
	case *messages.ToSession_Submit, *messages.ToSession_Run, *messages.ToSession_SpawnWorker, *messages.ToSession_CallTool, *messages.ToSession_SetTimer:
		return true
	}
	return false
}
