package persistencetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-dev/troupe/persistence"
)

// model is what a store must come to, kept in the plainest way.
type model struct {
	records map[string]uint64 // of each stream
	cursors map[string][]string
	leases  map[string]persistence.Lease   // newest
	old     map[string][]persistence.Lease // fenced
	keys    map[string]string
	index   map[string]string
}

func property(t *testing.T, su suite) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &machine{t: t, su: su, s: su.open(t), m: model{
			records: map[string]uint64{}, cursors: map[string][]string{}, leases: map[string]persistence.Lease{},
			old: map[string][]persistence.Lease{}, keys: map[string]string{}, index: map[string]string{},
		}}
		defer func() { must(t, m.s.Close()) }()
		actions := map[string]func(*rapid.T){
			"claim": m.claim, "append": m.append, "append again": m.append, "append to two": m.both, "append fenced": m.fenced, "": m.check,
		}
		if su.reopen != nil {
			actions["reopen"] = m.reopen
		}
		rt.Repeat(actions)
	})
}

type machine struct {
	t  *testing.T
	su suite
	s  persistence.Store
	m  model
}

func (m *machine) stream(rt *rapid.T) string {
	return rapid.SampledFrom([]string{"wrk/a", "wrk/b", "ses/c"}).Draw(rt, "stream")
}

func (m *machine) claim(rt *rapid.T) {
	stream := m.stream(rt)
	l, err := m.s.Claim(context.Background(), stream, "test")
	if err != nil {
		rt.Fatal(err)
	}
	was, claimed := m.m.leases[stream]
	if l.Next != m.m.records[stream]+1 || l.Epoch <= was.Epoch {
		rt.Fatalf("claim of %s: %+v after %+v with %d records", stream, l, was, m.m.records[stream])
	}
	if claimed {
		m.m.old[stream] = append(m.m.old[stream], was)
	}
	m.m.leases[stream] = l
}

// draft draws a batch for a stream that is claimed; ok is false when it is not.
func (m *machine) draft(rt *rapid.T, stream string) (b persistence.Batch, ok bool) {
	l, ok := m.m.leases[stream]
	next := m.m.records[stream] + 1
	b = persistence.Batch{
		Lease: l, Expect: next, Session: rapid.SampledFrom([]string{"", "s1", "s2"}).Draw(rt, "session"),
		Records: records(stream, next, rapid.IntRange(0, 3).Draw(rt, "records")),
	}
	if rapid.Bool().Draw(rt, "with key") {
		b.Keys = []persistence.Key{{Name: fmt.Sprintf("k%d", rapid.IntRange(0, 9).Draw(rt, "key")), Value: []byte(stream)}}
	}
	for _, i := range rapid.SliceOfN(rapid.IntRange(0, 4), 0, 3).Draw(rt, "index") {
		b.Index = append(b.Index, persistence.IndexOp{
			Key: fmt.Sprintf("i%d", i), Value: fmt.Appendf(nil, "%s@%d", stream, next), Delete: rapid.Bool().Draw(rt, "delete"),
		})
	}
	return b, ok
}

// expect is what the model says an append must come to.
func (m *machine) expect(batches []persistence.Batch) error {
	names := map[string]bool{}
	for _, b := range batches {
		for _, k := range b.Keys {
			if _, exists := m.m.keys[k.Name]; exists || names[k.Name] {
				return persistence.ErrDuplicate
			}
			names[k.Name] = true
		}
	}
	return nil
}

func (m *machine) commit(rt *rapid.T, batches ...persistence.Batch) {
	want := m.expect(batches)
	receipt, err := m.s.Append(context.Background(), batches...)
	if !errors.Is(err, want) {
		rt.Fatalf("append: %v, want %v", err, want)
	}
	if want != nil {
		return
	}
	var all []uint64
	for _, b := range batches {
		stream := b.Lease.Stream
		for range b.Records {
			m.m.records[stream]++
			if b.Session != "" {
				m.m.cursors[b.Session] = append(m.m.cursors[b.Session], fmt.Sprintf("%s#%d", stream, m.m.records[stream]))
				all = append(all, uint64(len(m.m.cursors[b.Session])))
			}
		}
		for _, k := range b.Keys {
			m.m.keys[k.Name] = string(k.Value)
		}
		for _, op := range b.Index {
			if op.Delete {
				delete(m.m.index, op.Key)
			} else {
				m.m.index[op.Key] = string(op.Value)
			}
		}
	}
	if len(batches) == 1 && len(all) > 0 && (receipt.First != all[0] || receipt.Last != all[len(all)-1]) {
		rt.Fatalf("receipt %+v, want %v", receipt, all)
	}
}

func (m *machine) append(rt *rapid.T) {
	b, ok := m.draft(rt, m.stream(rt))
	if !ok {
		rt.Skip("not claimed")
	}
	m.commit(rt, b)
}

func (m *machine) both(rt *rapid.T) {
	a, ok := m.draft(rt, "wrk/a")
	b, ok2 := m.draft(rt, "ses/c")
	if !ok || !ok2 {
		rt.Skip("not claimed")
	}
	m.commit(rt, a, b)
}

func (m *machine) fenced(rt *rapid.T) {
	stream := m.stream(rt)
	if len(m.m.old[stream]) == 0 {
		rt.Skip("never claimed twice")
	}
	b, _ := m.draft(rt, stream)
	b.Lease = rapid.SampledFrom(m.m.old[stream]).Draw(rt, "old lease")
	if _, err := m.s.Append(context.Background(), b); !errors.Is(err, persistence.ErrFenced) {
		rt.Fatalf("append with a fenced lease: %v", err)
	}
}

func (m *machine) reopen(*rapid.T) {
	m.s = m.su.reopen(m.t, m.s)
	for stream, l := range m.m.leases {
		m.m.old[stream] = append(m.m.old[stream], l)
	}
	clear(m.m.leases)
}

func (m *machine) check(rt *rapid.T) {
	for stream, n := range m.m.records {
		wantStream(m.t, m.s, stream, n)
	}
	for session, want := range m.m.cursors {
		var got []string
		for _, e := range readSession(m.t, m.s, session, 0) {
			got = append(got, string(e.Record.Body))
		}
		if !slices.Equal(got, want) {
			rt.Fatalf("session %s holds %q, want %q", session, got, want)
		}
	}
	for name, want := range m.m.keys {
		if got, err := m.s.Lookup(context.Background(), name); err != nil || string(got) != want {
			rt.Fatalf("key %s is %q, %v, want %q", name, got, err, want)
		}
	}
	var got, want []string
	must(m.t, m.s.Index(context.Background(), "", func(k string, v []byte) error { got = append(got, k+"="+string(v)); return nil }))
	for _, k := range slices.Sorted(maps.Keys(m.m.index)) {
		want = append(want, k+"="+m.m.index[k])
	}
	if !slices.Equal(got, want) {
		rt.Fatalf("index is %q, want %q", strings.Join(got, " "), strings.Join(want, " "))
	}
}
