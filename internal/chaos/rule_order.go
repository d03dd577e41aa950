package chaos

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// streamsInOrder is R2.
func streamsInOrder(v *view, r *report) {
	for _, f := range v.Findings {
		r.add(Broken, f.Stream, f.Seq, "the store says: %s", f.Problem)
	}
	ids := make(map[string]*fact)
	for _, s := range v.streams {
		var seq, epoch uint64
		for _, f := range s.facts {
			switch {
			case f.seq() <= seq:
				r.add(Duplicated, s.name, f.seq(), "record %d follows record %d", f.seq(), seq)
			case f.seq() != seq+1:
				r.add(Lost, s.name, f.seq(), "record %d follows record %d", f.seq(), seq)
			}
			if f.epoch() < epoch {
				r.add(Broken, s.name, f.seq(), "a record of epoch %d follows one of epoch %d", f.epoch(), epoch)
			}
			if epoch != 0 && f.epoch() != epoch && strings.HasPrefix(s.name, "wrk/") {
				activationFirst(f, seq, r)
			}
			seq, epoch = f.seq(), max(f.epoch(), epoch)
			id := string(f.entry.Record.GetRecordId())
			if other := ids[id]; other != nil && id != "" {
				r.add(Duplicated, s.name, f.seq(), "the record stands in %s at %d, too", other.stream, other.seq())
			}
			ids[id] = f
		}
	}
	for session, entries := range v.bySession() {
		var cursor uint64
		for _, e := range entries {
			switch {
			case e.Cursor == cursor:
				r.add(Duplicated, e.Stream, e.Record.GetSeq(), "cursor %d of %s is given twice", e.Cursor, session)
			case e.Cursor != cursor+1:
				r.add(Lost, e.Stream, e.Record.GetSeq(), "cursor %d of %s follows %d", e.Cursor, session, cursor)
			}
			cursor = e.Cursor
		}
	}
}

// activationFirst checks the first record of a later epoch of a worker: it says who took over, and
// knows all that was written before. A quarantine and its end come before an activation: one is instead of it.
func activationFirst(f *fact, before uint64, r *report) {
	if p, ok := f.what.(*messages.Panicked); ok && p.GetQuarantined() {
		return
	}
	if _, ok := f.what.(*messages.Released); ok {
		return
	}
	a, ok := f.what.(*messages.Activated)
	switch {
	case !ok:
		r.add(Broken, f.stream, f.seq(), "epoch %d begins with %T instead of an activation", f.epoch(), f.what)
	case a.GetEpoch() != f.epoch():
		r.add(Broken, f.stream, f.seq(), "an activation of epoch %d was written in epoch %d", a.GetEpoch(), f.epoch())
	case a.GetRecoveredSeq() != before:
		r.add(Broken, f.stream, f.seq(), "the activation knew %d records, there were %d", a.GetRecoveredSeq(), before)
	}
}

// bySession gathers the records that a session's cursor counts, in order of it.
func (v *view) bySession() map[string][]persistence.Entry {
	out := make(map[string][]persistence.Entry)
	for _, s := range v.streams {
		for _, f := range s.facts {
			if f.entry.Session != "" {
				out[f.entry.Session] = append(out[f.entry.Session], f.entry)
			}
		}
	}
	for _, entries := range out {
		slices.SortStableFunc(entries, func(a, b persistence.Entry) int { return cmp.Compare(a.Cursor, b.Cursor) })
	}
	return out
}

// eventsPrefix is R8.
func eventsPrefix(v *view, r *report) {
	all := v.bySession()
	seen := make(map[string][]Seen)
	var order []string
	for _, s := range v.Seen {
		if s.Event.GetSeq() == 0 { // deltas and progress are void until their fact arrives
			continue
		}
		if seen[s.Session] == nil {
			order = append(order, s.Session)
		}
		seen[s.Session] = append(seen[s.Session], s)
	}
	for _, session := range order {
		eventsOf(session, project(session, all[session]), seen[session], r)
	}
}

// eventsOf walks what a client saw of one session along what it should have seen.
func eventsOf(session string, want []*messages.Event, seen []Seen, r *report) {
	stream := messages.SessionStream(session)
	at := 0
	var last uint64
	for _, s := range seen {
		seq := s.Event.GetSeq()
		if seq <= last {
			r.add(Duplicated, stream, seq, "event %d was shown after event %d (life %d)", seq, last, s.Life)
			continue
		}
		last = seq
		for at < len(want) && want[at].GetSeq() < seq {
			r.add(Lost, stream, want[at].GetSeq(), "event %d (%s) was passed over", want[at].GetSeq(), want[at].GetType())
			at++
		}
		if at == len(want) || want[at].GetSeq() != seq {
			r.add(Broken, stream, seq, "event %d (%s) was shown in life %d and is not in the journal", seq, s.Event.GetType(), s.Life)
			continue
		}
		told, err := json.Marshal(s.Event)
		kept, kerr := json.Marshal(want[at])
		if err != nil || kerr != nil || !bytes.Equal(told, kept) {
			r.add(Broken, stream, seq, "event %d was shown in life %d as %.300s and is %.300s", seq, s.Life, told, kept)
		}
		at++
	}
}

// project makes the events of a session from its journal.
func project(session string, entries []persistence.Entry) []*messages.Event {
	var p conversation.Projector
	var out []*messages.Event
	for _, e := range entries {
		kind, worker, _ := strings.Cut(e.Stream, "/")
		if kind == "ses" {
			worker = ""
		}
		what, err := decode(e.Stream, e.Record)
		if err != nil || what == nil { // found by R2
			continue
		}
		ev := conversation.ProjectShared(session, worker, what, e.Record, e.Cursor)
		if kind != "cnv" {
			ev = p.Project(session, worker, what, e.Record, e.Cursor)
		}
		if ev != nil && ev.GetSeq() != 0 {
			out = append(out, ev)
		}
	}
	return out
}
