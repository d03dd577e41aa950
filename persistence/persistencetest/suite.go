// Package persistencetest holds every store to the contract of package persistence. A store
// passes it before it is used, and again when the contract grows.
package persistencetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// Open makes an empty store; it or the cleanup of t closes it.
type Open func(t testing.TB) persistence.Store

// Reopen closes a store and opens its content again, as a new process would find it.
type Reopen func(t testing.TB, s persistence.Store) persistence.Store

// Run runs the suite. reopen is nil for stores whose content ends with them: what it would have
// shown is then skipped.
func Run(t *testing.T, open Open, reopen Reopen) {
	s := suite{open: open, reopen: reopen}
	for _, c := range []struct {
		name string
		test func(*testing.T, suite)
	}{
		{"AppendedRecordsAreReadBackInOrder", readBack},
		{"ReadBeginsInTheMiddleOfAnAppend", readFrom},
		{"NewerClaimFencesOlderOnes", fencing},
		{"StreamThatNobodyClaimedTakesNothing", unclaimed},
		{"WrongSeqIsAConflictAndWritesNothing", conflict},
		{"CursorsAreDenseAcrossStreams", cursors},
		{"CursorsGoOnAfterReopening", cursorsReopened},
		{"EpochsGrowAcrossReopening", epochsReopened},
		{"AppendOverSeveralStreamsIsWholeOrNothing", together},
		{"AppendWithoutSessionHasNoCursor", noSession},
		{"DuplicateKeyWritesNothing", duplicateKey},
		{"IndexIsOrderedAndFollowsPutsAndDeletes", index},
		{"TimersComeDueInOrderAndOnce", timers},
		{"LargeBodiesComeBackWhole", largeBodies},
		{"LargeAppendIsOneAppend", largeAppend},
		{"BlobsAreKeptUnderTheirHash", blobs},
		{"TooMuchIsRefusedAndWritesNothing", tooLarge},
		{"NonsenseIsRefusedWithAReason", nonsense},
		{"NewestSnapshotIsKeptAndOlderOnesGo", snapshots},
		{"SnapshotNeedsALeaseAndItsRecords", snapshotGuards},
		{"TrimForgetsWhatASnapshotHolds", trim},
		{"TrimmedToItsEndAStreamGoesOn", trimAll},
		{"TrimNeedsALeaseAndASnapshot", trimGuards},
		{"DeletedSessionIsGoneWhole", remove},
		{"DeletedStreamLeavesAHoleInTheSessionsOfOthers", removeShared},
		{"DeletionsDisturbNobody", removeMeanwhile},
		{"EnqueuedAppendsAreAnsweredInOrderAndOnce", enqueueOrder},
		{"AppendsInFlightSeeEachOther", inFlight},
		{"ConcurrentWritersKeepEveryOrder", concurrent},
		{"StreamsAreListedByPrefix", streams},
		{"NamesThatBeginAlikeAreKeptApart", prefixes},
		{"ErrorOfTheCallerEndsAWalkUnchanged", callerError},
		{"EndedContextIsRespected", contexts},
		{"SoundStoreVerifies", verify},
		{"ClosedStoreAnswersEverything", closed},
		{"ReleasedLeaseIsVoid", release},
		{"AnyHistoryAgreesWithAModel", property},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, s) })
	}
}

type suite struct {
	open   Open
	reopen Reopen
}

// again reopens or skips.
func (s suite) again(t *testing.T, st persistence.Store) persistence.Store {
	t.Helper()
	if s.reopen == nil {
		t.Skip("this store cannot be reopened: its content ends with it")
	}
	return s.reopen(t, st)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t testing.TB, doing string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: error %v, want %v", doing, err, want)
	}
}

func claim(t testing.TB, s persistence.Store, stream string) persistence.Lease {
	t.Helper()
	l, err := s.Claim(context.Background(), stream, "test")
	must(t, err)
	return l
}

// records makes n records whose bodies say where they belong.
func records(stream string, from uint64, n int) []*messages.Record {
	out := make([]*messages.Record, n)
	for i := range out {
		out[i] = &messages.Record{
			RecordId: fmt.Appendf(nil, "%-16.16d", from+uint64(i)), Type: 7, Schema: 1, AtUnixMs: 1_700_000_000_000,
			TurnId: "turn", Body: body(stream, from+uint64(i)),
		}
	}
	return out
}

func body(stream string, seq uint64) []byte { return fmt.Appendf(nil, "%s#%d", stream, seq) }

// writer appends to one stream and counts along.
type writer struct {
	s       persistence.Store
	lease   persistence.Lease
	session string
	next    uint64
}

func write(t testing.TB, s persistence.Store, stream, session string) *writer {
	t.Helper()
	l := claim(t, s, stream)
	return &writer{s: s, lease: l, session: session, next: l.Next}
}

func (w *writer) batch(n int) persistence.Batch {
	b := persistence.Batch{Lease: w.lease, Expect: w.next, Session: w.session, Records: records(w.lease.Stream, w.next, n)}
	w.next += uint64(n)
	return b
}

func (w *writer) append(t testing.TB, n int) persistence.Receipt {
	t.Helper()
	r, err := w.s.Append(context.Background(), w.batch(n))
	must(t, err)
	return r
}

func read(t testing.TB, s persistence.Store, stream string, from uint64) []persistence.Entry {
	t.Helper()
	var out []persistence.Entry
	must(t, s.Read(context.Background(), stream, from, func(e persistence.Entry) error {
		out = append(out, e)
		return nil
	}))
	return out
}

func readSession(t testing.TB, s persistence.Store, session string, after uint64) []persistence.Entry {
	t.Helper()
	var out []persistence.Entry
	must(t, s.ReadSession(context.Background(), session, after, func(e persistence.Entry) error {
		out = append(out, e)
		return nil
	}))
	return out
}

// wantStream checks that a stream holds exactly the records 1 to n, of growing epochs.
func wantStream(t testing.TB, s persistence.Store, stream string, n uint64) {
	t.Helper()
	entries := read(t, s, stream, 0)
	if uint64(len(entries)) != n {
		t.Fatalf("stream %s holds %d records, want %d", stream, len(entries), n)
	}
	var epoch uint64
	for i, e := range entries {
		want := uint64(i) + 1
		if e.Stream != stream || e.Record.Seq != want || string(e.Record.Body) != string(body(stream, want)) || e.Record.Epoch < epoch {
			t.Fatalf("stream %s at %d: got %s seq %d epoch %d (after %d) body %q", stream, want, e.Stream, e.Record.Seq, e.Record.Epoch, epoch, e.Record.Body)
		}
		epoch = e.Record.Epoch
	}
	head, err := s.Head(context.Background(), stream)
	must(t, err)
	if head != n {
		t.Fatalf("head of %s is %d, want %d", stream, head, n)
	}
}

// wantCursors checks that a session holds cursors after+1 to last without gaps.
func wantCursors(t testing.TB, s persistence.Store, session string, after, last uint64) {
	t.Helper()
	next := after
	for _, e := range readSession(t, s, session, after) {
		next++
		if e.Cursor != next || e.Session != session {
			t.Fatalf("session %s: cursor %d of %q where %d was expected", session, e.Cursor, e.Session, next)
		}
		if string(e.Record.Body) != string(body(e.Stream, e.Record.Seq)) {
			t.Fatalf("session %s cursor %d: %s seq %d has body %q", session, e.Cursor, e.Stream, e.Record.Seq, e.Record.Body)
		}
	}
	cursor, err := s.Cursor(context.Background(), session)
	must(t, err)
	if next != last || cursor != last {
		t.Fatalf("session %s ends at %d when read and at %d when asked, want %d", session, next, cursor, last)
	}
}

func listStreams(t testing.TB, s persistence.Store, prefix string) []string {
	t.Helper()
	var out []string
	must(t, s.Streams(context.Background(), prefix, func(name string) error { out = append(out, name); return nil }))
	return out
}

func wantList(t testing.TB, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s: %q, want %q", what, got, want)
	}
}
