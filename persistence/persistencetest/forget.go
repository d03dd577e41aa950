package persistencetest

import (
	"context"
	"testing"

	"github.com/troupe-dev/troupe/persistence"
)

func forget(t *testing.T, su suite) {
	s, ctx := su.open(t), context.Background()
	f, ok := s.(persistence.Forgetter)
	if !ok {
		t.Skip("this store forgets nothing")
	}
	must(t, f.Forget(ctx, "none"))
	a, b, other := write(t, s, "ses/a", "s1"), write(t, s, "wrk/a", "s1"), write(t, s, "wrk/b", "s11")
	other.append(t, 3)
	for range 5 {
		a.append(t, 3)
		b.append(t, 2)
		large := b.batch(20)
		for i := range large.Records {
			large.Records[i].Body = pattern(60<<10, byte(i))
		}
		_, err := s.Append(ctx, large)
		must(t, err)
	}
	must(t, f.Forget(ctx, "s1"))
	check := func() {
		t.Helper()
		wantStream(t, s, "ses/a", 0)
		wantStream(t, s, "wrk/a", 0)
		wantCursors(t, s, "s1", 0, 0)
		wantStream(t, s, "wrk/b", 3)
		wantCursors(t, s, "s11", 0, 3)
		var names []string
		must(t, s.Streams(ctx, "", func(name string) error { names = append(names, name); return nil }))
		wantList(t, "streams", names, []string{"wrk/b"})
		for _, stream := range []string{"ses/a", "wrk/a"} {
			if n, err := s.Head(ctx, stream); err != nil || n != 0 {
				t.Errorf("head of %s: %d %v", stream, n, err)
			}
		}
		if n, err := s.Cursor(ctx, "s1"); err != nil || n != 0 {
			t.Errorf("cursor %d %v", n, err)
		}
		wantVerified(t, s)
	}
	check()
	_, err := s.Append(ctx, b.batch(1))
	wantErr(t, "append under a lease of before", err, persistence.ErrFenced)
	if su.reopen != nil {
		s = su.reopen(t, s)
		check()
	}
	// What is written under the same names begins anew.
	again := write(t, s, "wrk/a", "s1")
	if again.next != 1 {
		t.Fatalf("the next record is %d", again.next)
	}
	again.append(t, 2)
	wantCursors(t, s, "s1", 0, 2)
	wantStream(t, s, "wrk/a", 2)
	wantVerified(t, s)
}
