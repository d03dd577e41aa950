package actors_test

import (
	"testing"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/actortest"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/memory"
)

// TestAnAuditTellsOfTheOthersAndNamesWhatIsDamaged has a session with a record that no version knows, and one of nothing else.
func TestAnAuditTellsOfTheOthersAndNamesWhatIsDamaged(t *testing.T) {
	store := memory.New()
	t.Cleanup(func() { _ = store.Close() })
	h := actortest.New(t, actortest.Options{Store: store, Model: actortest.Say("ok")})
	bad, w := h.Create(&messages.CreateSession{Tenant: "a"})
	good, _ := h.Create(&messages.CreateSession{Tenant: "a"})
	unreadable := messages.NewID(messages.SessionPrefix)
	l, err := store.Claim(t.Context(), messages.SessionStream(unreadable), "test")
	if err == nil {
		_, err = store.Append(t.Context(), persistence.Batch{Lease: l, Expect: l.Next, Session: unreadable, Records: []*messages.Record{{Type: 9999, Body: []byte{0xfa, 0xff, 0x07, 0}}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	h.Stop()
	write(t, store, bad, w, &messages.Record{Type: 9999, Body: []byte{0xfa, 0xff, 0x07, 0}})
	of := func(session string) (told map[string]bool, damage map[string]bool) {
		all, err := actors.Audit(t.Context(), store, session)
		if err != nil {
			t.Fatal(err)
		}
		told, damage = map[string]bool{}, map[string]bool{}
		for _, v := range all.GetEntries() {
			switch {
			case v.GetKind() == "damage":
				damage[v.GetSessionId()] = true
			case len(damage) > 0:
				t.Errorf("%v comes after what is damaged: a limit could leave that out", v)
			default:
				told[v.GetSessionId()] = true
			}
		}
		return told, damage
	}
	if told, damage := of(""); !told[good] || !told[bad] || damage[good] || !damage[bad] || !damage[unreadable] {
		t.Errorf("of all %v, damaged %v", told, damage)
	}
	if told, damage := of(bad); !told[bad] || !damage[bad] || len(damage) > 1 {
		t.Errorf("of the damaged one %v, damaged %v", told, damage)
	}
	// Whose it is cannot be read: it is nobody's, and keeps nobody from what is theirs.
	if _, err := h.Svc.WhoseIs(t.Context(), &messages.WhoseIs{Id: unreadable, Tenant: "a"}); actortest.Code(err) != messages.CodeNotFound {
		t.Errorf("whose it is: %v", err)
	}
	if _, err := h.Svc.WhoseIs(t.Context(), &messages.WhoseIs{Id: unreadable, Any: true}); err != nil {
		t.Errorf("whether it is there: %v", err)
	}
	if _, err := h.Svc.WhoseIs(t.Context(), &messages.WhoseIs{Id: bad, Tenant: "a"}); err != nil {
		t.Errorf("whose the one is that can be read in part: %v", err)
	}
}
