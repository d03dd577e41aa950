package actors_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence"
)

// begins is the seq of the first record of a worker that is left.
func begins(t *testing.T, store persistence.Store, worker string) uint64 {
	t.Helper()
	err := store.Read(context.Background(), messages.WorkerStream(worker), 1, func(persistence.Entry) error { return nil })
	var left *persistence.TrimmedError
	if errors.As(err, &left) {
		return left.First
	}
	if err != nil {
		t.Fatal(err)
	}
	return 1
}

// TestATrimmedJournalIsOpenedFromEitherSnapshotAndQuarantinedWithoutOne: the answers are so long that a snapshot
// names the record that holds them.
func TestATrimmedJournalIsOpenedFromEitherSnapshotAndQuarantinedWithoutOne(t *testing.T) {
	store := &spoiling{counting: &counting{Store: kept(t)}, spoil: func(s *messages.Snapshot) { s.State = s.GetState()[1:] }}
	now, session, worker := time.Unix(1e9, 0), "", ""
	var sent []*messages.Message
	o := actortest.Options{Store: store, Trim: time.Minute, Now: func() time.Time { return now }, Models: windowed{actortest.Model(func(_ context.Context, r *model.Request) actortest.Reply {
		if r.Agent == actors.CompactionAgent {
			return actortest.Reply{Text: "the gist"}
		}
		sent = r.Prompt.Messages
		return actortest.Reply{Text: fmt.Sprint(len(sent), strings.Repeat(" long", 4000))}
	}), 1 << 20}}
	for life := range 4 {
		h := actortest.New(t, o)
		if session == "" {
			session, worker = h.Create(&messages.CreateSession{})
		}
		for i := range 20 {
			if i == 10 {
				actortest.Ask[*messages.Compacted](h, session, &messages.CompactHistory{})
			}
			h.Run(session, fmt.Sprintf("prompt %d of life %d", i, life))
		}
		h.Stop()
		now = now.Add(40 * time.Minute)
	}
	first := begins(t, store, worker)
	older := newest(t, store, worker, newest(t, store, worker, 0).GetSeq())
	if first < 20 || first > older.GetSeq() {
		t.Fatalf("the journal begins at %d, the older snapshot is at %d", first, older.GetSeq())
	}
	var asked [][]*messages.Message
	for store.count = range 2 { // the newest, then the one before
		h := actortest.New(t, o)
		if got := actortest.Ask[*messages.History](h, session, &messages.ReadHistory{}); !got.GetTrimmed() || len(got.GetTurns()) < 20 {
			t.Errorf("%d spoilt: %d turns", store.count, len(got.GetTurns()))
		}
		h.Run(session, fmt.Sprint("once more ", store.count))
		asked = append(asked, slices.Clone(sent))
		h.Stop()
	}
	if n := len(asked[0]); len(asked[1]) != n+2 {
		t.Errorf("%d messages, then %d", n, len(asked[1]))
	}
	for i, m := range asked[0] {
		if !proto.Equal(&messages.ChatMessage{Content: m.Text}, &messages.ChatMessage{Content: asked[1][i].Text}) {
			t.Errorf("message %d is another from the older snapshot", i)
		}
	}
	cut := store.spoil
	store.count, store.spoil = 2, func(s *messages.Snapshot) { s.Schema = 2 } // of the release before, which had the same fields
	h := actortest.New(t, o)
	h.Run(session, "once more")
	h.Stop()
	for why, spoil := range map[string]func(*messages.Snapshot){
		"is damaged":                     cut,
		"was written by a later release": func(s *messages.Snapshot) { s.Schema += 1000 },
	} {
		store.count, store.spoil = 2, spoil
		h := actortest.New(t, o)
		_, err := actortest.Try[*messages.InputReply](h, session, &messages.SubmitInput{Parts: actortest.Text("no")})
		if actortest.Code(err) != messages.CodeQuarantined || !strings.Contains(err.Error(), "no snapshot is of use") || !strings.Contains(err.Error(), why) {
			t.Errorf("without a snapshot: %v", err)
		}
		h.Stop()
	}
}

// TestNothingGoesThatIsYoungThatIsStillSentOrThatNobodyAskedToTrim: each of the three keeps the journal whole.
func TestNothingGoesThatIsYoungThatIsStillSentOrThatNobodyAskedToTrim(t *testing.T) {
	for name, c := range map[string]struct {
		trim, step time.Duration
		compact    bool
		gone       bool
	}{
		"not asked":    {0, 40 * time.Minute, true, false},
		"young":        {time.Hour, time.Minute, true, false},
		"still sent":   {time.Hour, 40 * time.Minute, false, false},
		"left and old": {time.Hour, 40 * time.Minute, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			store, now, session, worker := kept(t), time.Unix(1e9, 0), "", ""
			o := actortest.Options{Store: store, Trim: c.trim, Now: func() time.Time { return now }, Model: actortest.Say("an answer")}
			for range 3 {
				h := actortest.New(t, o)
				if session == "" {
					session, worker = h.Create(&messages.CreateSession{})
				}
				for i := range 20 {
					if i == 10 && c.compact {
						actortest.Ask[*messages.Compacted](h, session, &messages.CompactHistory{})
					}
					h.Run(session, strings.Repeat("prompt ", 200))
				}
				h.Stop()
				now = now.Add(c.step)
			}
			if first := begins(t, store, worker); (first > 1) != c.gone {
				t.Errorf("the journal begins at %d", first)
			}
		})
	}
}
