//go:build unix

package badger

import (
	"context"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	engine "github.com/dgraph-io/badger/v4"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// BenchmarkAppend compares the committer with one synced transaction per append, at the same
// number of appenders, options, records and entries, in turns, because disks have moods. x/each
// is the ratio; where a sync takes a millisecond its targets are 0.9, 6 and 20 at 1, 64 and
// 1,024 appenders.
func BenchmarkAppend(b *testing.B) {
	for _, appenders := range []int{1, 64, 1024} {
		b.Run(fmt.Sprintf("appenders=%d", appenders), func(b *testing.B) { compare(b, appenders) })
	}
}

func compare(b *testing.B, appenders int) {
	each := newTransactions(b)
	s := openIn(b, b.TempDir())
	leases := make([]persistence.Lease, appenders)
	for i := range leases {
		var err error
		if leases[i], err = s.Claim(context.Background(), fmt.Sprintf("wrk/%036d", i), "bench"); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	rounds := min(20, max(1, b.N/(4*appenders)))
	var took, cpu, eachTook, eachCPU time.Duration
	for round := range rounds {
		n := b.N / rounds
		if round < b.N%rounds {
			n++
		}
		start, used := time.Now(), cpuTime()
		share(appenders, n, func(i, n int) {
			for range n {
				l := &leases[i]
				_, err := s.Append(context.Background(), persistence.Batch{
					Lease: *l, Expect: l.Next, Session: l.Stream, Records: benchRecords(),
				})
				if err != nil {
					b.Error(err)
					return
				}
				l.Next += 2
			}
		})
		took += time.Since(start)
		cpu += cpuTime() - used
		b.StopTimer()
		used = cpuTime()
		eachTook += each.run(b, appenders, max(time.Since(start), 20*time.Millisecond))
		eachCPU += cpuTime() - used
		b.StartTimer()
	}
	rate, eachRate := float64(b.N)/took.Seconds(), float64(each.made.Load())/eachTook.Seconds()
	b.ReportMetric(float64(cpu.Microseconds())/float64(b.N), "cpu-µs/append")
	b.ReportMetric(float64(eachCPU.Microseconds())/float64(max(1, each.made.Load())), "each-cpu-µs/append")
	b.ReportMetric(rate, "appends/s")
	b.ReportMetric(eachRate, "each/s")
	b.ReportMetric(rate/eachRate, "x/each")
}

// cpuTime is what the process has used, flushes and compactions included.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// share splits n appends among goroutines.
func share(appenders, n int, run func(i, n int)) {
	var wg sync.WaitGroup
	for i := range appenders {
		mine := n / appenders
		if i < n%appenders {
			mine++
		}
		wg.Go(func() { run(i, mine) })
	}
	wg.Wait()
}

// benchRecords is an append as a turn makes it: two facts of 600 bytes.
func benchRecords() []*messages.Record {
	out := make([]*messages.Record, 2)
	for i := range out {
		out[i] = &messages.Record{RecordId: make([]byte, 16), Type: 5, AtUnixMs: 1_700_000_000_000, TurnId: "trn_0198c0de", Body: make([]byte, 600)}
	}
	return out
}

// transactions makes one Update per append.
type transactions struct {
	db   *engine.DB
	made atomic.Int64
	seq  uint64
}

func newTransactions(b *testing.B) *transactions {
	o := Options{}.withDefaults()
	db, err := engine.Open(engineOptions(filepath.Join(b.TempDir(), "db"), o, &engineLog{log: o.Logger}))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	return &transactions{db: db}
}

// run appends for about that long and returns how long it took.
func (x *transactions) run(b *testing.B, appenders int, long time.Duration) time.Duration {
	start := time.Now()
	base := x.seq
	x.seq += 1 << 32
	share(appenders, appenders, func(i, _ int) {
		stream := fmt.Sprintf("wrk/%036d", i)
		for seq := base; time.Since(start) < long; seq += 2 {
			if err := x.db.Update(func(txn *engine.Txn) error { return setOne(txn, stream, seq) }); err != nil {
				b.Error(err)
				return
			}
			x.made.Add(1)
		}
	})
	return time.Since(start)
}

func setOne(txn *engine.Txn, stream string, seq uint64) error {
	value, err := proto.Marshal(&messages.Commit{Records: benchRecords(), FirstCursor: seq, Session: stream})
	if err != nil {
		return err
	}
	key := nameKey(nil, tagCommit, stream, seq)
	if err := txn.Set(key, seal(key, value)); err != nil {
		return err
	}
	key = nameKey(nil, tagCursor, stream, seq)
	return txn.Set(key, seal(key, append(binary.AppendUvarint(nil, seq), stream...)))
}
