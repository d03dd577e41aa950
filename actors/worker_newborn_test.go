package actors_test

import (
	"context"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// looked counts what is claimed and read of each stream.
type looked struct {
	persistence.Store
	mu            sync.Mutex
	claims, reads map[string]int
}

func (s *looked) Claim(ctx context.Context, stream, owner string) (persistence.Lease, error) {
	s.note(&s.claims, stream)
	return s.Store.Claim(ctx, stream, owner)
}

func (s *looked) Read(ctx context.Context, stream string, from uint64, fn func(persistence.Entry) error) error {
	s.note(&s.reads, stream)
	return s.Store.Read(ctx, stream, from, fn)
}

func (s *looked) Release(l persistence.Lease) { s.Store.(persistence.Releaser).Release(l) }

func (s *looked) note(where *map[string]int, stream string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if *where == nil {
		*where = make(map[string]int)
	}
	(*where)[stream]++
}

func (s *looked) take() (claims, reads map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	claims, reads = maps.Clone(s.claims), maps.Clone(s.reads)
	clear(s.claims)
	clear(s.reads)
	return claims, reads
}

// TestAWorkerThatWasJustMadeNeitherClaimsNorReadsItsJournal: whoever wrote it down hands it over, with what it says; its successor in
// the next process reads the same.
func TestAWorkerThatWasJustMadeNeitherClaimsNorReadsItsJournal(t *testing.T) {
	store := &looked{Store: kept(t)}
	h := actortest.New(t, actortest.Options{Store: store, Model: actortest.Say("ok")})
	v := actortest.Ask[*messages.SessionView](h, "", &messages.CreateSession{First: &messages.SubmitInput{InputId: "in_1", Parts: actortest.Text("go")}})
	first, s := v.GetFirst(), v.GetId()
	rests(h, s)
	other := actortest.Ask[*messages.WorkerView](h, s, &messages.SpawnWorker{Copied: actortest.Ask[*messages.History](h, s, &messages.ReadHistory{}).GetTurns()}).GetId()
	actortest.Ask[*messages.TurnResult](h, s, &messages.RunInput{Input: &messages.SubmitInput{WorkerId: other, Parts: actortest.Text("go")}})
	again := actortest.Ask[*messages.InputReply](h, s, &messages.SubmitInput{InputId: "in_1", Parts: actortest.Text("go")})
	if first.GetSeq() == 0 || again.GetSeq() != first.GetSeq() {
		t.Errorf("an input that was accepted at %d is answered with %d", first.GetSeq(), again.GetSeq())
	}
	claims, reads := store.take()
	for _, stream := range []string{messages.SessionStream(s), messages.WorkerStream(first.GetWorkerId()), messages.WorkerStream(other)} {
		if claims[stream] != 1 || reads[stream] != 0 {
			t.Errorf("%s was claimed %d times and read %d times", stream, claims[stream], reads[stream])
		}
	}
	said := func() []string {
		var out []string
		for _, w := range []string{first.GetWorkerId(), other} {
			for _, turn := range actortest.Ask[*messages.History](h, s, &messages.ReadHistory{WorkerId: w}).GetTurns() {
				for _, m := range turn.GetMessages() {
					out = append(out, m.GetRole()+": "+m.GetContent())
				}
			}
		}
		return out
	}
	before := strings.Join(said(), "\n")
	h.Stop()
	h = actortest.New(t, actortest.Options{Store: store, Model: actortest.Say("ok")})
	if after := strings.Join(said(), "\n"); after != before || strings.Count(after, "go") != 3 {
		t.Errorf("the conversations were\n%s\nand are\n%s", before, after)
	}
	again = actortest.Ask[*messages.InputReply](h, s, &messages.SubmitInput{InputId: "in_1", Parts: actortest.Text("go")})
	if again.GetSeq() != first.GetSeq() {
		t.Errorf("an input that was accepted at %d is answered with %d by the next process", first.GetSeq(), again.GetSeq())
	}
	if claims, reads := store.take(); claims[messages.WorkerStream(other)] != 1 || reads[messages.WorkerStream(other)] == 0 {
		t.Errorf("the next process claimed %v and read %v", claims, reads)
	}
}
