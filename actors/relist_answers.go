package actors

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/pipeline"
)

// How a question was answered, and a call in doubt settled, stays listed for as long as the journals are there: also of workers that were deleted and of
// sessions that were closed, which are not listed themselves.

// unlisted makes again what stays listed of workers that are not, and of a session that is closed.
func (r *relister) unlisted(ctx context.Context, id string, f *sessionFacts) error {
	workers := slices.Collect(maps.Keys(f.gone))
	if f.closed {
		for _, w := range f.workers {
			workers = append(workers, w.GetWorkerId())
		}
		if err := r.run(ctx, id, true); err != nil {
			return err
		}
	}
	for _, w := range workers {
		err := r.answers(ctx, id, w)
		if damaged(err) {
			r.svc.Log.Error("what was answered to a worker is not listed again", "session", id, "worker", w, "err", err)
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// answers makes again how the questions of a worker were answered, and its calls in doubt settled, from what is left of its journal. It does not fold
// that: what was answered is true of a journal, too, that does not.
func (r *relister) answers(ctx context.Context, session, worker string) error {
	a := answered{session: session, asked: make(map[string]string), ops: make(map[string]persistence.IndexOp)}
	stream := messages.WorkerStream(worker)
	err := r.svc.Store.Read(ctx, stream, 1, a.read)
	var trimmed *persistence.TrimmedError
	if errors.As(err, &trimmed) {
		err = r.svc.Store.Read(ctx, stream, trimmed.First, a.read)
	}
	if err != nil {
		return err
	}
	for _, op := range a.ops {
		if err := r.index(ctx, op); err != nil {
			return err
		}
	}
	return nil
}

// answered collects what a journal says of answers.
type answered struct {
	session string
	asked   map[string]string // exec id -> the approval that waits
	ops     map[string]persistence.IndexOp
}

func (a *answered) read(e persistence.Entry) error {
	f, err := messages.WorkerFactIn(e.Record)
	switch f := f.(type) {
	case *messages.ApprovalRequested:
		a.asked[f.GetExecId()] = f.GetApprovalId()
	case *messages.ApprovalResolved:
		delete(a.asked, f.GetExecId())
		a.put(AnsweredKey(f.GetApprovalId(), a.session), conversation.DecisionName(f.GetDecision()))
	case *messages.ToolFinished:
		a.cancelled(f.GetExecId())
	case *messages.Closed: // of one that was quarantined
		for exec := range a.asked {
			a.cancelled(exec)
		}
	case *messages.CallDoubted:
		delete(a.ops, ResolvedKey(f.GetExecId(), a.session))
	case *messages.CallResolved:
		a.put(ResolvedKey(f.GetExecId(), a.session), conversation.ResolutionName(f.GetResolution()))
	}
	return asDamage(err)
}

func (a *answered) put(key, word string) {
	a.ops[key] = persistence.IndexOp{Key: key, Value: []byte(word)}
}

func (a *answered) cancelled(exec string) {
	if id := a.asked[exec]; id != "" {
		delete(a.asked, exec)
		a.put(AnsweredKey(id, a.session), conversation.DecisionName(messages.Decision_CANCELLED))
	}
}

// run makes again what is listed of a session's run, if it has one; closed: only how its questions were answered.
func (r *relister) run(ctx context.Context, session string, closed bool) error {
	id, ops := messages.RunOf(session), make(map[string]persistence.IndexOp)
	p := &PipelineRun{svc: r.svc, log: r.svc.Log, id: id, session: session, state: pipeline.NewState(pipeline.Options{})}
	keep := func(all []persistence.IndexOp) {
		for _, op := range all {
			ops[op.Key] = op
		}
	}
	seen := false
	err := r.svc.Store.Read(ctx, messages.RunStream(id), 1, func(e persistence.Entry) error {
		f, err := messages.RunFactIn(e.Record)
		if err != nil || f == nil {
			return asDamage(err)
		}
		if seen {
			asked, _ := p.questions([]proto.Message{f}, e.Record.GetAtUnixMs())
			keep(asked)
		}
		seen = true
		return asDamage(p.state.Apply(f, e.Record))
	})
	if err != nil || !seen {
		return err
	}
	if closed {
		for key := range ops {
			if approval, waits := strings.CutPrefix(key, ApprovalKey(session, "")); waits && !ops[key].Delete {
				keep(p.answered(approval, conversation.DecisionName(messages.Decision_CANCELLED)))
			}
		}
	} else {
		keep(p.index(nil))
	}
	for _, op := range ops {
		if err := r.index(ctx, op); err != nil {
			return err
		}
	}
	return nil
}
