package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http/httptest"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/memory"
)

// tokenless is a store that has lost tokens: those that are there may be as they were before they were revoked.
type tokenless struct{ *memory.Store }

func (s tokenless) Index(ctx context.Context, prefix string, fn func(string, []byte) error) error {
	err := s.Store.Index(ctx, prefix, fn)
	if err == nil && prefix == "tok/" {
		err = fmt.Errorf("entries of the index below %q may be lost: %w", prefix, persistence.ErrCorrupt)
	}
	return err
}

func TestAServerThatLostTokensLetsNobodyIn(t *testing.T) {
	store := memory.New()
	t.Cleanup(func() { _ = store.Close() })
	const secret = "troupe_a-secret"
	hash := sha256.Sum256([]byte(secret))
	serve := func(store persistence.Store) (*server, *gateway.Bearer) {
		rt, err := troupe.New(t.Context(), troupe.Options{Store: store, DataDir: t.TempDir(), Still: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = rt.Close(context.Background()) })
		s := &server{house: &house{node: rt, rt: rt}}
		return s, &gateway.Bearer{Find: s.find, Open: s.open}
	}
	whole, bearer := serve(store)
	made := &messages.CreateToken{Token: &messages.Token{Name: "phone", Hash: hash[:], Scopes: []string{"read"}}}
	if _, err := ask[*messages.Token](t.Context(), whole.house, made); err != nil {
		t.Fatal(err)
	}
	with, without := httptest.NewRequest("GET", "/", nil), httptest.NewRequest("GET", "/", nil)
	with.Header.Set("Authorization", "Bearer "+secret)
	if p, err := bearer.Authenticate(with); err != nil || p.Name != "phone" {
		t.Fatalf("%+v, %v", p, err)
	}
	lost, bearer := serve(tokenless{store})
	if p, err := bearer.Authenticate(with); err == nil {
		t.Errorf("a token that may have been revoked lets %+v in", p)
	}
	if p, err := bearer.Authenticate(without); err == nil {
		t.Errorf("without a token %+v is let in", p)
	}
	for _, m := range []proto.Message{&messages.ListTokens{}, made, &messages.RevokeToken{Name: "other"}} {
		var fail *messages.Failure
		if _, err := ask[proto.Message](t.Context(), lost.house, m); !errors.As(err, &fail) || fail.GetCode() != messages.CodeCorrupt || fail.GetHint() == "" {
			t.Errorf("%T: %v", m, err)
		}
	}
}
