package badger

import (
	"crypto/sha256"
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// drawn is an append of records, of which some have this and that in common, and some nothing.
func drawn(t *rapid.T) []*messages.Record {
	first := rapid.Uint64Range(1, 1<<40).Draw(t, "first")
	id := rapid.SliceOfN(rapid.Byte(), recordIDSize, recordIDSize).Draw(t, "id")
	records := make([]*messages.Record, rapid.IntRange(1, 5).Draw(t, "records"))
	for i := range records {
		follows := make([]byte, recordIDSize)
		persistence.FollowingID(follows, id, i)
		r := &messages.Record{
			Seq: first + uint64(i), Epoch: rapid.SampledFrom([]uint64{0, 1 << 32, 1<<32 | 7}).Draw(t, "epoch"), RecordId: follows,
			Type: rapid.Uint32().Draw(t, "type"), Schema: rapid.Uint32Range(0, 2).Draw(t, "schema"),
			AtUnixMs: rapid.SampledFrom([]int64{0, -1, 1_700_000_000_000}).Draw(t, "at"), CausationId: rapid.SampledFrom([]string{"", "cause"}).Draw(t, "cause"),
			TurnId: rapid.SampledFrom([]string{"", "turn", "another"}).Draw(t, "turn"), Ignorable: rapid.Bool().Draw(t, "ignorable"),
			Body: rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "body"),
		}
		switch rapid.IntRange(0, 5).Draw(t, "id of its own") {
		case 0:
			r.RecordId = rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "own id")
		case 1:
			sum := sha256.Sum256(r.GetBody())
			r.Body, r.BodyBlob = nil, sum[:]
		}
		records[i] = r
	}
	return records
}

func TestWhatRecordsHaveInCommonIsReadBackInEach(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		records := drawn(t)
		var c messages.Commit
		if err := proto.Unmarshal(appendRecords(nil, records), &c); err != nil {
			t.Fatal(err)
		}
		complete(&c, records[0].GetSeq())
		if c.GetCommon() != nil || len(c.GetRecords()) != len(records) {
			t.Fatalf("%d records were read, with %v in common", len(c.GetRecords()), c.GetCommon())
		}
		for i, r := range records {
			if !proto.Equal(c.GetRecords()[i], r) {
				t.Fatalf("record %d is read as %v, not %v", i, c.GetRecords()[i], r)
			}
		}
	})
}

func TestACommitOfAnEarlierReleaseIsReadAsItIs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := &messages.Commit{Records: drawn(t), FirstCursor: 7, Session: "ses_1"}
		b, err := proto.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var c messages.Commit
		if err := proto.Unmarshal(b, &c); err != nil {
			t.Fatal(err)
		}
		if complete(&c, want.GetRecords()[0].GetSeq()); !proto.Equal(&c, want) {
			t.Fatalf("it is read as %v, not %v", &c, want)
		}
	})
}

// The room that an append takes beforehand is measured by its records as they are alone.
func TestRecordsTakeNoMoreRoomThanIsMadeForThem(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		records, room := drawn(t), 0
		for _, r := range records {
			room += recordFrame + proto.Size(r)
		}
		if n := len(appendRecords(nil, records)); n > room {
			t.Fatalf("%d records take %d bytes, and have %d", len(records), n, room)
		}
	})
}

func TestARecordOfATurnTakesLittleBesidesItsBody(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 4} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			records := make([]*messages.Record, n)
			first := []byte("sixteen bytes id")
			for i := range records {
				id := make([]byte, recordIDSize)
				persistence.FollowingID(id, first, i)
				records[i] = &messages.Record{
					Seq: uint64(i) + 100, Epoch: 1<<32 | 9, RecordId: id, Type: 7, Schema: 1, AtUnixMs: 1_700_000_000_000,
					TurnId: "trn_01a207892b037c47a410e3ea5d511d7a", Body: make([]byte, 100),
				}
			}
			if got, most := len(appendRecords(nil, records))-100*n, 86+8*(n-1); got > most {
				t.Errorf("%d records take %d bytes besides their bodies, not %d at most", n, got, most)
			}
		})
	}
}

func TestATaskThatIsUsedAgainEncodesWithoutAllocations(t *testing.T) { //nolint:paralleltest // allocations are counted for the process
	b := persistence.Batch{
		Lease: persistence.Lease{Stream: "wrk/wrk_1", Epoch: 1}, Expect: 7, Session: "ses_1",
		Index: []persistence.IndexOp{{Key: "wrk/ses_1/wrk_1", Value: make([]byte, 100)}, {Key: "gone", Delete: true}},
	}
	for i := range 4 {
		b.Records = append(b.Records, &messages.Record{Seq: 7 + uint64(i), Epoch: 1, Type: 7, TurnId: "turn", RecordId: make([]byte, recordIDSize), Body: make([]byte, 200)})
	}
	task := &appendTask{}
	n := testing.AllocsPerRun(100, func() {
		task.batches = append(task.batches[:0], b)
		task.encode()
		task.reset()
	})
	if n > 1 {
		t.Errorf("an append is encoded with %v allocations", n)
	}
}
