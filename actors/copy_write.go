package actors

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// Copying is a session on its way from a source into the store. Nothing of it can be seen until Write returns
// without an error: it stands under a mark until then, and what a crash leaves behind is removed
// when the runtime starts again (Sweep).
type Copying struct {
	Source   Source
	Survey   *Survey
	ID       string // of the copy; the session's own: every id stays
	Model    string // of later generations; empty: as before
	By       string // who asked for a fork
	Fork     bool   // it remembers where it comes from, and its timers stay behind
	Restrict bool   // folders are not trusted, whatever the records say
	Reason   string // why what is open is closed

	KeepModes bool // commands run where the records say, whatever is configured here

	svc    *Services
	names  *naming
	facts  sessionFacts // of the copy
	leases map[string]persistence.Lease
	title  string
	mark   string // of the finished copy

	batch  []persistence.Batch // of the append that is being put together
	weight int
	count  int

	ClosedCalls, ClosedTurns, Staged int32
	View                             *messages.SessionView
	Modes                            []*messages.ModeSettled // of an import: what is not as the file says, or not as configured here
}

// Bounds of one append of a copy: well below those of a store, so that an append never stands in the way of others for long.
const (
	copyWeight  = 2 << 20
	copyRecords = 1000
	copyStreams = 32
)

// Write copies the session. An error means that there is nothing of it; one that is a *messages.Failure of code
// already_exists, that somebody else has the id.
func (p *Copying) Write(ctx context.Context, svc *Services) error {
	p.svc, p.leases = svc, make(map[string]persistence.Lease)
	if p.ID != p.Survey.Session {
		p.names = newNaming(p.Survey, p.ID)
	}
	if err := p.begin(ctx); err != nil {
		return err
	}
	err := p.records(ctx)
	if err == nil {
		err = p.finish(ctx)
	}
	p.release()
	if err != nil {
		return errors.Join(err, remove(context.WithoutCancel(ctx), svc, p.ID))
	}
	return nil
}

// begin sets the mark, in the one append that also makes sure that the id is free.
func (p *Copying) begin(ctx context.Context) error {
	// Before anything is claimed: a claim of what exists would fence its owner.
	for stream := range p.Survey.streams {
		head, err := p.svc.Store.Head(ctx, p.stream(stream))
		if err != nil {
			return fmt.Errorf("begin the copy %s: %w", p.ID, err)
		}
		if head != 0 {
			return messages.Fail(messages.CodeAlreadyExists, fmt.Sprintf("session %s cannot be made: %s exists", p.ID, p.stream(stream)), "")
		}
	}
	mark, err := marked(ctx, p.svc.Store, p.ID)
	if err != nil {
		return err
	}
	if mark == markUnfinished {
		return messages.Fail(messages.CodeUnavailable, fmt.Sprintf("session %s is just being written", p.ID), "try again")
	}
	l, err := p.claim(ctx, messages.SessionStream(p.ID))
	if err == nil {
		_, err = p.svc.Store.Append(ctx, persistence.Batch{
			Lease: l, Expect: 1, Session: p.ID, Index: []persistence.IndexOp{{Key: markKey(p.ID), Value: []byte(markUnfinished)}},
		})
	}
	if err != nil {
		p.release()
		return fmt.Errorf("begin the copy %s: %w", p.ID, err)
	}
	return nil
}

func (p *Copying) claim(ctx context.Context, stream string) (persistence.Lease, error) {
	if l, ok := p.leases[stream]; ok {
		return l, nil
	}
	l, err := p.svc.Store.Claim(ctx, stream, p.svc.Node)
	if err != nil {
		return l, fmt.Errorf("claim %s for a copy: %w", stream, err)
	}
	p.leases[stream] = l
	return l, nil
}

func (p *Copying) release() {
	if r, ok := p.svc.Store.(persistence.Releaser); ok {
		for _, l := range p.leases {
			r.Release(l)
		}
	}
}

// records copies what the survey has seen, in order.
func (p *Copying) records(ctx context.Context) error {
	err := p.Source(ctx, func(e persistence.Entry) error {
		if e.Cursor > p.Survey.Cursor {
			return errSurveyed
		}
		f, err := factIn(e.Stream, e.Record)
		if err != nil {
			return err
		}
		r, err := p.record(e, f)
		if err != nil {
			return err
		}
		return p.add(ctx, p.stream(e.Stream), r)
	})
	if err != nil && !errors.Is(err, errSurveyed) {
		return fmt.Errorf("copy the records of %s: %w", p.Survey.Session, err)
	}
	return nil
}

func (p *Copying) stream(old string) string {
	if p.names == nil {
		return old
	}
	return p.names.stream(old)
}

// record is a record as the copy has it. f is its fact, nil when it may be skipped by those who do not know it.
func (p *Copying) record(e persistence.Entry, f proto.Message) (*messages.Record, error) {
	old := e.Record
	r := &messages.Record{
		Type: old.GetType(), Schema: old.GetSchema(), AtUnixMs: old.GetAtUnixMs(), Ignorable: old.GetIgnorable(), Body: old.GetBody(),
		RecordId: old.GetRecordId(), CausationId: p.names.id(old.GetCausationId()), TurnId: p.names.id(old.GetTurnId()),
	}
	if p.names != nil || len(r.GetRecordId()) == 0 {
		r.RecordId = newRecordID()
	}
	changed := p.change(f, r)
	if f != nil && changed {
		body, err := recordOf(e.Stream, f)
		if err != nil {
			return nil, err
		}
		r.Body = body.GetBody()
	}
	if f != nil && strings.HasPrefix(e.Stream, "ses/") {
		if err := p.facts.apply(f, &messages.Record{Seq: old.GetSeq(), AtUnixMs: r.GetAtUnixMs()}); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// change makes a fact the copy's own, and says whether it did. The body of a fact that is the same stays as it is, byte for byte.
func (p *Copying) change(f proto.Message, r *messages.Record) bool {
	if f == nil {
		return false
	}
	origin := ""
	if x, ok := f.(*messages.WorkerCreated); ok {
		origin = x.GetWorkerId()
	}
	p.names.fact(f)
	switch x := f.(type) {
	case *messages.SessionCreated:
		x.RunId = "" // a copy has the conversations of a run, and not the run
		if p.Fork {
			r.AtUnixMs = p.svc.Now().UnixMilli()
			x.By = p.By
		}
		if p.Model != "" {
			x.Model = p.Model
		}
	case *messages.WorkerSpawned:
		if p.Model != "" {
			x.Model = p.Model
		}
	case *messages.WorkspaceAttached:
		if IsHome(x) {
			x.Path = homePath(p.svc, p.ID)
			return true
		}
		if isCopy(x) { // a clone is made again when the session opens; a copy of a folder stays behind
			x.ClonePath = filepath.Join(copiesPath(p.svc, p.ID), path.Base(x.GetUri()), copyTree)
			x.Path = filepath.Join(x.GetClonePath(), filepath.FromSlash(subdirOf(x)))
			for _, of := range p.facts.attached { // a copy of a copy is made of the one that is here
				if x.GetProjectDir() != "" && of.GetUri() == x.GetSource() {
					x.ProjectDir = of.GetPath()
				}
			}
			return true
		}
	case *messages.WorkerCreated:
		if p.Fork {
			x.Origin = &messages.Lineage{Conversation: origin, Seq: p.Survey.workers[origin].Seq()}
		}
	case *messages.InputAccepted:
		if p.title == "" && x.GetCall() == nil {
			p.title = cutTitle(x.GetParts())
		}
	}
	return p.names != nil || p.Model != ""
}

func homePath(svc *Services, session string) string {
	return filepath.Join(svc.DataDir, "homes", session)
}

// add puts a record into the append at hand; that is written when it is full, or has records of the
// same stream already with others between: the cursor counts in the order of an append.
func (p *Copying) add(ctx context.Context, stream string, r *messages.Record) error {
	weight := persistence.Weight(r)
	last := len(p.batch) - 1
	same := last >= 0 && p.batch[last].Lease.Stream == stream
	again := false
	for i := range max(last, 0) {
		again = again || p.batch[i].Lease.Stream == stream
	}
	if p.count >= copyRecords || p.count > 0 && p.weight+weight > copyWeight || !same && (again || len(p.batch) >= copyStreams) {
		if err := p.flush(ctx); err != nil {
			return err
		}
		same = false
	}
	if !same {
		l, err := p.claim(ctx, stream)
		if err != nil {
			return err
		}
		p.batch = append(p.batch, persistence.Batch{Lease: l, Expect: l.Next, Session: p.ID})
	}
	b := &p.batch[len(p.batch)-1]
	b.Records = append(b.Records, r)
	p.weight, p.count = p.weight+weight, p.count+1
	return nil
}

func (p *Copying) flush(ctx context.Context) error {
	if len(p.batch) == 0 {
		return nil
	}
	if _, err := p.svc.Store.Append(ctx, p.batch...); err != nil {
		return fmt.Errorf("write a part of the copy %s: %w", p.ID, err)
	}
	for _, b := range p.batch {
		l := p.leases[b.Lease.Stream]
		l.Next = b.Expect + uint64(len(b.Records))
		p.leases[b.Lease.Stream] = l
	}
	p.batch, p.weight, p.count = nil, 0, 0
	return nil
}

// finish closes what is open in each conversation, and then makes the session known, in one append.
func (p *Copying) finish(ctx context.Context) error {
	for _, id := range p.Survey.order {
		if err := p.close(ctx, id, p.Survey.workers[id]); err != nil {
			return err
		}
	}
	if err := p.closeShared(ctx); err != nil {
		return err
	}
	if err := p.ended(ctx); err != nil {
		return err
	}
	if err := p.revoked(ctx); err != nil {
		return err
	}
	if err := p.settleModes(ctx); err != nil {
		return err
	}
	for _, uri := range p.narrowed() {
		if err := p.sessionFact(ctx, &messages.TrustChanged{Uri: uri, Trust: messages.Trust_RESTRICTED, By: p.by()}); err != nil {
			return err
		}
	}
	if err := p.flush(ctx); err != nil {
		return err
	}
	if p.Restrict {
		p.facts.restrict()
		p.mark = markRestricted
	}
	index, err := p.index()
	if err != nil {
		return err
	}
	l := p.leases[messages.SessionStream(p.ID)]
	_, err = p.svc.Store.Append(ctx, persistence.Batch{Lease: l, Expect: l.Next, Session: p.ID, Index: index, Timers: p.timers()})
	if err != nil {
		return fmt.Errorf("finish the copy %s: %w", p.ID, err)
	}
	return nil
}

// ended takes the second step of a deletion of which only the first one was copied.
func (p *Copying) ended(ctx context.Context) error {
	for _, old := range p.Survey.order {
		id := p.names.id(old)
		if !p.Survey.workers[old].Closed() || !p.has(id) {
			continue
		}
		if err := p.sessionFact(ctx, &messages.WorkerEnded{WorkerId: id, Reason: p.Reason}); err != nil {
			return err
		}
	}
	return nil
}

// revoked takes the rules back that a file claims people have answered with.
func (p *Copying) revoked(ctx context.Context) error {
	if !p.Restrict || p.Fork { // what a fork has, people here have answered
		return nil
	}
	for _, v := range slices.Clone(p.facts.rules) {
		if err := p.sessionFact(ctx, &messages.RuleRevoked{Rule: v.GetRule(), RuleId: v.GetRuleId(), By: byImport}); err != nil {
			return err
		}
	}
	return nil
}

// sessionFact adds a fact of the copy's own to the journal of its session.
func (p *Copying) sessionFact(ctx context.Context, f proto.Message) error {
	r, err := messages.NewRecord(f, "")
	if err != nil {
		return err
	}
	r.RecordId, r.AtUnixMs = newRecordID(), p.svc.Now().UnixMilli()
	if err := p.facts.apply(f, &messages.Record{Seq: p.facts.seq + 1, AtUnixMs: r.GetAtUnixMs()}); err != nil {
		return err
	}
	return p.add(ctx, messages.SessionStream(p.ID), r)
}

// has says whether a worker of the copy has not ended.
func (p *Copying) has(worker string) bool {
	return slices.ContainsFunc(p.facts.workers, func(w *messages.WorkerSpawned) bool { return w.GetWorkerId() == worker })
}

// close writes what ends a worker's open turn, and what else is different in the copy from here on.
func (p *Copying) close(ctx context.Context, id string, s *conversation.State) error {
	by := p.by()
	facts := s.Close(by, p.Reason, func() string { return messages.NewID(messages.ExecPrefix) })
	if len(facts) > 0 {
		p.ClosedTurns++
	}
	if !s.Closed() {
		facts = append(facts, s.CloseMail(p.Reason)...)
	}
	facts = append(facts, untold(s, by)...) // their turns are cut off in the copy
	if p.Model != "" {
		facts = append(facts, &messages.ConfigChanged{Model: p.Model})
	}
	if (s.Panics() > 0 || s.Deaths() > 0 || s.Quarantined() != "") && !s.Closed() {
		facts = append(facts, &messages.Released{By: by})
	}
	if p.Fork {
		for _, t := range s.Timers() {
			facts = append(facts, &messages.TimerCancelled{TimerId: t.GetTimerId()})
		}
	}
	for _, f := range facts {
		if _, ok := f.(*messages.ToolFinished); ok {
			p.ClosedCalls++
		}
		if err := p.addFact(ctx, id, s, f); err != nil {
			return fmt.Errorf("close %s in the copy: %w", id, err)
		}
	}
	p.Staged += int32(len(s.Staged()))
	return nil
}

// addFact writes one more fact behind those of the source, of which s is the fold.
func (p *Copying) addFact(ctx context.Context, worker string, s *conversation.State, f proto.Message) error {
	turn, at := "", p.svc.Now().UnixMilli()
	if t := s.Turn(); t != nil {
		turn = p.names.id(t.ID)
	}
	if err := s.ApplyFact(f, &messages.Record{Seq: s.Seq() + 1, AtUnixMs: at}); err != nil {
		return err
	}
	own := proto.Clone(f)
	p.names.fact(own)
	r, err := messages.NewRecord(own, turn)
	if err != nil {
		return err
	}
	r.RecordId, r.AtUnixMs = newRecordID(), at
	return p.add(ctx, p.stream(messages.WorkerStream(worker)), r)
}

// by is who writes down what is different in the copy.
func (p *Copying) by() string {
	if p.Fork {
		return "fork"
	}
	return byImport
}

// byImport is who closes what was open in an imported session.
const byImport = "import"

// newRecordID makes the bytes by which a record is found again.
func newRecordID() []byte {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // crypto/rand ends the process rather than fail
	return id
}

// index makes the listing entries; with them the session is there.
func (p *Copying) index() ([]persistence.IndexOp, error) {
	grant, err := p.facts.grantOf(nil, nil)
	if err != nil {
		return nil, err
	}
	p.View = p.facts.view(grant)
	p.View.Title = p.title
	b, err := proto.Marshal(p.View)
	if err != nil {
		return nil, fmt.Errorf("encode listing entry: %w", err)
	}
	mark := persistence.IndexOp{Key: markKey(p.ID), Delete: true}
	if p.mark != "" {
		mark = persistence.IndexOp{Key: markKey(p.ID), Value: []byte(p.mark)}
	}
	ops := []persistence.IndexOp{mark, {Key: SessionKey(p.ID), Value: b}}
	for _, v := range p.facts.rules {
		if b, err = proto.Marshal(v); err != nil {
			return nil, fmt.Errorf("encode listing entry: %w", err)
		}
		ops = append(ops, persistence.IndexOp{Key: RuleKey(p.ID, v.GetRuleId()), Value: b})
	}
	for _, old := range p.Survey.order {
		id := p.names.id(old)
		if !p.has(id) {
			continue
		}
		w := p.workerView(id, p.Survey.workers[old])
		if b, err = proto.Marshal(w); err != nil {
			return nil, fmt.Errorf("encode listing entry: %w", err)
		}
		ops = append(ops, persistence.IndexOp{Key: WorkerKey(p.ID, w.GetId()), Value: b})
		p.View.Workers = append(p.View.Workers, w)
	}
	for _, f := range p.Survey.facts.shared {
		entry, err := sharedEntry(p.names.shared(p.Survey.shared[f.GetConversationId()].Listing()))
		if err != nil {
			return nil, err
		}
		ops = append(ops, entry...)
	}
	SumUp(p.View)
	return ops, nil
}

func (p *Copying) workerView(id string, s *conversation.State) *messages.WorkerView {
	v := &messages.WorkerView{
		Id: id, SessionId: p.ID, State: stateInactive, Agent: s.Agent(), Model: s.Model(), Turns: int32(s.Turns()),
		Staged: int32(len(s.Staged())), Usage: s.Usage(), UpdatedAtUnixMs: s.At(),
	}
	if last := s.Last(); last != nil {
		v.LastOutcome = conversation.OutcomeName(last.Completed.GetOutcome())
	}
	return v
}
