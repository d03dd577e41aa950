package actors

import (
	"context"
	"errors"
	"fmt"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// Journal is what can be read of a worker's journal.
type Journal struct {
	Turns []*conversation.Turn // the open one last
	// Compacted is the record of the newest turn that a summary stands for; 0: there is none.
	Compacted uint64
	// Trimmed says that the oldest records are gone for good. Of the turns before the oldest snapshot only those are
	// there that the conversation still holds, and without an id.
	Trimmed bool
}

// ReadTurns folds a worker's journal and returns its turns. It wakes nobody.
func ReadTurns(ctx context.Context, store persistence.Store, worker string) (*Journal, error) {
	out := &Journal{}
	f, err := foldAll(ctx, store, worker, func(s *conversation.State) {
		if t := s.Turn(); t != nil && (len(out.Turns) == 0 || out.Turns[len(out.Turns)-1] != t) {
			out.Turns = append(out.Turns, t)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read turns of %s: %w", worker, err)
	}
	out.Turns = append(f.past, out.Turns...)
	out.Compacted, out.Trimmed = f.Compacted(), f.trimmed
	return out, nil
}

// folded is a state that keeps what was compacted, as far as the journal has it.
type folded struct {
	*conversation.State
	trimmed bool
	past    []*conversation.Turn // before the snapshot that it began with
	lead    []*messages.Turn     // the exchange that stood for what is gone
}

// history is the conversation as far as it is there: an exchange with a summary stands for what was trimmed.
func (f *folded) history() *messages.History {
	h := f.State.History()
	h.Trimmed, h.Turns = f.trimmed, append(f.lead, h.Turns...)
	return h
}

// foldAll folds a worker's whole journal, and keeps what was compacted. It calls look after each record. A journal that
// was trimmed is folded from its oldest snapshot.
func foldAll(ctx context.Context, store persistence.Store, worker string, look func(*conversation.State)) (*folded, error) {
	stream := messages.WorkerStream(worker)
	f := &folded{State: &conversation.State{}}
	fold := func() error {
		return store.Read(ctx, stream, f.Seq()+1, func(e persistence.Entry) error {
			err := f.Apply(e.Record)
			if err == nil {
				look(f.State)
			}
			return err
		})
	}
	err := fold()
	if errors.Is(err, persistence.ErrTrimmed) {
		if f, err = oldest(ctx, store, stream); err == nil {
			look(f.State)
			err = fold()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read journal of %s: %w", worker, err)
	}
	return f, nil
}

// oldest begins with the oldest snapshot of a stream that is of use.
func oldest(ctx context.Context, store persistence.Store, stream string) (*folded, error) {
	var found *conversation.State
	var why error
	for below := uint64(0); ; {
		snap, err := store.Snapshot(ctx, stream, below)
		if errors.Is(err, persistence.ErrNotFound) {
			break
		}
		if err != nil {
			return nil, err
		}
		s, err := restore(ctx, store, stream, snap)
		if err == nil {
			found = s
		}
		why = errors.Join(why, err)
		if below = snap.GetSeq(); below <= 1 {
			break
		}
	}
	if found == nil {
		return nil, fmt.Errorf("it was trimmed, and no snapshot is of use: %w", errors.Join(persistence.ErrCorrupt, why))
	}
	f := &folded{State: found, trimmed: true, past: found.Past()}
	if text := found.Summary(); text != "" {
		f.lead = []*messages.Turn{{Outcome: conversation.OutcomeName(messages.TurnCompleted_DONE), Compacted: true, Messages: []*messages.ChatMessage{
			{Role: string(messages.User), Content: conversation.SummaryRequest}, {Role: string(messages.Assistant), Content: text},
		}}}
	}
	found.Remember()
	return f, nil
}
