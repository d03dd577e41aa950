package troupe_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// cutHead trims the journal of a session's first worker up to a seq, and returns the cursor from which on the session is whole.
func cutHead(t *testing.T, store persistence.Store, session string, upto uint64) (first uint64) {
	t.Helper()
	ctx, stream := context.Background(), ""
	err := store.ReadSession(ctx, session, 0, func(e persistence.Entry) error {
		if strings.HasPrefix(e.Stream, "wrk/") && e.Record.GetSeq() == upto {
			stream, first = e.Stream, e.Cursor+1
		}
		return nil
	})
	if err != nil || stream == "" {
		t.Fatalf("no record %d of a worker: %v", upto, err)
	}
	l, err := store.Claim(ctx, stream, "test")
	if err == nil {
		err = store.PutSnapshot(ctx, l, &messages.Snapshot{Seq: upto, State: []byte("the fold of what goes")})
	}
	if err == nil {
		err = store.Trim(ctx, l, upto)
	}
	if err != nil {
		t.Fatal(err)
	}
	return first
}

// TestASessionThatIsNotWholeIsNeitherForkedNorExported: the refusal says so, where it begins and what to do, and nothing
// comes of it.
func TestASessionThatIsNotWholeIsNeitherForkedNorExported(t *testing.T) {
	p := newPlace(t, busy())
	s := worked(t, p)
	file := export(t, p, s.ID())
	_, err := p.Fork(t.Context(), s.ID(), troupe.ForkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sessions := func() int {
		n := 0
		if err := p.store.Index(t.Context(), "ses/", func(string, []byte) error { n++; return nil }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := sessions()
	first := cutHead(t, p.store, s.ID(), 3)
	refused := func(what string, err error) {
		t.Helper()
		var f *troupe.Failure
		if !errors.As(err, &f) || f.GetCode() != messages.CodeTrimmed || f.GetHint() == "" {
			t.Fatalf("%s: %v", what, err)
		}
		for _, word := range []string{s.ID(), what, "trimmed", fmt.Sprint("record ", first)} {
			if !strings.Contains(f.GetMessage(), word) {
				t.Errorf("%s: %q does not say %q", what, f.GetMessage(), word)
			}
		}
	}
	var out bytes.Buffer
	refused("exported", p.Export(t.Context(), s.ID(), &out))
	if out.Len() != 0 {
		t.Errorf("%d bytes of an export that was refused", out.Len())
	}
	for _, at := range []uint64{0, 1, first - 1, first, first + 1} { // before, at and behind what is left
		_, err := p.Fork(t.Context(), s.ID(), troupe.ForkOptions{At: at})
		refused("forked", err)
	}
	_, err = p.ImportSession(t.Context(), strings.NewReader(file), &messages.ImportSession{})
	refused("compared", err)
	if n := sessions(); n != before {
		t.Errorf("%d sessions, and %d before", n, before)
	}
}
