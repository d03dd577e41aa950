package actors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// sessionBuilder makes a session's first records.
type sessionBuilder struct {
	svc      *Services
	m        *messages.CreateSession
	standing []string
	input    string                        // id of the first one
	made     []*messages.WorkspaceAttached // copies that go when the session does not come to be
	ctx      context.Context               //nolint:containedctx // of one building: copies are made no further when it ends
}

func (b *sessionBuilder) build() *sessionOpened {
	worker, session, fail := b.facts()
	if fail == nil {
		b.standing, fail = b.svc.standing(session[0].(*messages.SessionCreated).GetFolder())
	}
	if fail != nil {
		return &sessionOpened{fail: fail}
	}
	ctx := context.Background()
	id, workerID := b.m.GetSessionId(), worker[0].(*messages.WorkerCreated).GetWorkerId()
	sj, err := persistence.OpenJournal(ctx, b.svc.Store, messages.SessionStream(id), id, b.svc.Node)
	if err != nil {
		return &sessionOpened{fail: messages.Fail(messages.CodeUnavailable, err.Error(), "")}
	}
	if sj.Next() != 1 {
		sj.Release()
		return &sessionOpened{fail: messages.Fail(messages.CodeAlreadyExists, fmt.Sprintf("session %s exists", id), "")}
	}
	wj, err := persistence.OpenJournal(ctx, b.svc.Store, messages.WorkerStream(workerID), id, b.svc.Node)
	if err != nil {
		sj.Release()
		return &sessionOpened{fail: messages.Fail(messages.CodeUnavailable, err.Error(), "")}
	}
	sj.Now, wj.Now = b.svc.Now, b.svc.Now
	o := &sessionOpened{journal: sj}
	srecs, err := records(session)
	if err == nil {
		var wrecs []*messages.Record
		if wrecs, err = records(worker); err == nil {
			err = b.append(o, wj, srecs, wrecs, session, worker)
		}
	}
	if err != nil {
		wj.Release()
		sj.Release()
		code := messages.CodeUnavailable
		if errors.Is(err, persistence.ErrTooLarge) {
			code = messages.CodeBadRequest
		}
		return &sessionOpened{fail: messages.Fail(code, err.Error(), "")}
	}
	return o
}

func (b *sessionBuilder) append(o *sessionOpened, wj *persistence.Journal, srecs, wrecs []*messages.Record, session, worker []proto.Message) error {
	at := b.svc.Now().UnixMilli()
	for i, r := range srecs {
		r.Seq, r.AtUnixMs = uint64(i+1), at
		if err := o.facts.apply(session[i], r); err != nil {
			return err
		}
	}
	env, err := b.svc.projectEnv(o.facts.created.GetProjectId())
	if err != nil {
		return err
	}
	grant, err := o.facts.grantOf(b.standing, env)
	if err != nil {
		return err
	}
	o.grant = grant
	o.reply = o.facts.view(grant)
	o.reply.Title = b.title()
	index, err := b.index(o.reply, wj.Stream())
	if err != nil {
		return err
	}
	run, err := b.run()
	if err != nil {
		return err
	}
	defer func() {
		for _, p := range run {
			p.Journal.Release() // the PipelineRun claims its own
		}
	}()
	receipt, err := appendAndWait(b.svc, append([]persistence.Part{
		{Journal: o.journal, Draft: persistence.Draft{Records: srecs, Index: index}}, {Journal: wj, Draft: persistence.Draft{Records: wrecs}},
	}, run...)...)
	if err != nil {
		return err
	}
	if len(run) == 0 { // else the worker's are not the last records
		o.born = bear(wj, worker, wrecs, receipt.Last)
	} else {
		wj.Release() // the Worker claims its own
	}
	if b.m.GetFirst() != nil {
		o.reply.First = &messages.InputReply{InputId: b.input, Seq: receipt.Last, SessionId: b.m.GetSessionId(), WorkerId: o.facts.workers[0].GetWorkerId()}
	}
	return nil
}

func (b *sessionBuilder) title() string { return cutTitle(b.svc.cleanParts(b.m.GetFirst().GetParts())) }

// cutTitle is what a listing calls a session, by its first input.
func cutTitle(parts []*messages.Part) string {
	t := strings.Join(strings.Fields(conversation.InputText(parts)), " ")
	if r := []rune(t); len(r) > 80 {
		t = string(r[:79]) + "…"
	}
	return t
}

func (b *sessionBuilder) index(v *messages.SessionView, workerStream string) ([]persistence.IndexOp, error) {
	sv, err := proto.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode listing entry: %w", err)
	}
	id := strings.TrimPrefix(workerStream, "wrk/")
	state, staged := stateInactive, int32(0)
	if b.m.GetFirst() != nil { // should the process end before the turn begins
		state, staged = stateWaiting, 1
	}
	wv, err := proto.Marshal(&messages.WorkerView{Id: id, SessionId: v.GetId(), State: state, Staged: staged, Agent: v.GetAgent(), Model: v.GetModel(), UpdatedAtUnixMs: v.GetCreatedAtUnixMs()})
	if err != nil {
		return nil, fmt.Errorf("encode listing entry: %w", err)
	}
	return []persistence.IndexOp{{Key: SessionKey(v.GetId()), Value: sv}, {Key: WorkerKey(v.GetId(), id), Value: wv}}, nil
}

func records(facts []proto.Message) ([]*messages.Record, error) {
	out := make([]*messages.Record, 0, len(facts))
	for _, f := range facts {
		r, err := messages.NewRecord(f, "")
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// facts checks the command and says what is to be written: the worker's facts and the session's.
func (b *sessionBuilder) facts() (worker, session []proto.Message, fail *messages.Failure) {
	m := b.m
	profile, ok := b.svc.agent(m.GetAgent())
	if !ok {
		return nil, nil, messages.Fail(messages.CodeAgent, fmt.Sprintf("agent %q is not configured", m.GetAgent()), "see `agents:` in the configuration")
	}
	attached, fail := b.attached()
	if fail == nil {
		fail = b.check()
	}
	if fail != nil {
		return nil, nil, fail
	}
	modelName := m.GetModel()
	if modelName == "" {
		modelName = profile.Model
	}
	system := b.svc.Redact.String(m.GetSystem())
	if system == "" {
		system = profile.System
	}
	workerID := messages.NewID(messages.WorkerPrefix)
	created := &messages.SessionCreated{
		SessionId: m.GetSessionId(), Agent: profile.Name, Model: modelName, Tenant: m.GetTenant(),
		Rules: m.GetRules(), NoInput: m.GetNoInput(), Persist: m.GetPersist(), Env: m.GetEnv(), Ask: m.GetAsk(), By: m.GetBy(),
	}
	if b := m.GetBudget().Within(b.svc.Budget); b.Bounds() {
		created.Budget = b
	}
	var folder string
	created.Folder, folder = folderOf(firstOf(attached))
	created.RunId = m.GetRun().GetRunId()
	project, fail := b.svc.belongs(m.GetTenant(), m.GetProjectId(), folder)
	if fail != nil {
		return nil, nil, fail
	}
	created.ProjectId = project.GetId()
	session = []proto.Message{created}
	for _, a := range attached {
		session = append(session, a)
	}
	session = append(session, &messages.WorkerSpawned{WorkerId: workerID, Agent: profile.Name, Model: modelName})
	worker = []proto.Message{&messages.WorkerCreated{
		WorkerId: workerID, SessionId: m.GetSessionId(), Agent: profile.Name, Model: modelName, System: system,
		Origin: m.GetOrigin(), Copied: m.GetCopied(),
	}}
	if f := m.GetFirst(); f != nil {
		b.input = cmp.Or(f.GetInputId(), messages.NewID(messages.InputPrefix))
		if strings.TrimSpace(conversation.InputText(f.GetParts())) == "" {
			return nil, nil, messages.Fail(messages.CodeBadRequest, "the input is empty", "say what the agent should do")
		}
		worker = append(worker, b.svc.tracedInput(&messages.InputAccepted{
			InputId: b.input, Mode: f.GetMode(), Origin: f.GetOrigin(), From: f.GetFrom(), Parts: b.svc.cleanParts(f.GetParts()), People: f.GetPeople(),
			ContentHash: conversation.ContentHash(f.GetParts(), nil), Traceparent: f.GetTraceparent(),
		}, m.GetSessionId(), workerID))
	}
	return worker, session, nil
}
