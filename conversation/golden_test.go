package conversation_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
)

// TestGoldenRecordsStayReadable decodes one record of every fact as an earlier release wrote it,
// and compares it with what that release meant (the .json beside it). Run with -update, the test
// writes what is missing for a new fact; what is there is never written again: journals cannot
// be either.
func TestGoldenRecordsStayReadable(t *testing.T) {
	for _, g := range goldenFacts() {
		t.Run(g.name, func(t *testing.T) {
			bin, js := filepath.Join("testdata", "golden", g.name+".bin"), filepath.Join("testdata", "golden", g.name+".json")
			b, err := os.ReadFile(bin)
			if errors.Is(err, fs.ErrNotExist) && *update {
				g.write(t, bin, js)
				b, err = os.ReadFile(bin)
			}
			if err != nil {
				t.Fatalf("%v (a new fact: go test ./conversation -run Golden -update, and commit)", err)
			}
			g.check(t, b, js)
		})
	}
}

type golden struct {
	name   string
	number uint32
	wrap   protoreflect.MessageDescriptor // WorkerFact or SessionFact
	field  protoreflect.FieldDescriptor
	decode func(*messages.Record) (proto.Message, error)
}

func goldenFacts() []golden {
	var out []golden
	add := func(journal string, wrap protoreflect.MessageDescriptor, decode func(*messages.Record) (proto.Message, error)) {
		fields := wrap.Oneofs().ByName("fact").Fields()
		for i := range fields.Len() {
			f := fields.Get(i)
			out = append(out, golden{fmt.Sprintf("%s_%02d_%s", journal, f.Number(), f.Name()), uint32(f.Number()), wrap, f, decode})
		}
	}
	add("worker", (&messages.WorkerFact{}).ProtoReflect().Descriptor(), messages.WorkerFactIn)
	add("session", (&messages.SessionFact{}).ProtoReflect().Descriptor(), messages.SessionFactIn)
	return out
}

func (g golden) write(t *testing.T, bin, js string) {
	w := newMessage(g.wrap)
	fact := w.Mutable(g.field).Message()
	fill(fact, 0)
	r, err := messages.NewRecord(fact.Interface(), "trn_1")
	if err != nil {
		t.Fatal(err)
	}
	r.Seq, r.Epoch, r.RecordId, r.AtUnixMs, r.CausationId = 7, 2, []byte("0123456789abcdef"), 1_700_000_000_000, "inp_1"
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	text, err := protojson.MarshalOptions{Multiline: true, UseProtoNames: true}.Marshal(fact.Interface())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(bin), 0o755), os.WriteFile(bin, b, 0o644), os.WriteFile(js, append(text, '\n'), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func (g golden) check(t *testing.T, b []byte, js string) {
	var r messages.Record
	if err := proto.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.ProtoReflect().GetUnknown()) > 0 || r.GetType() != g.number || r.GetSeq() != 7 || r.GetEpoch() != 2 || r.GetTurnId() != "trn_1" ||
		r.GetCausationId() != "inp_1" || r.GetAtUnixMs() != 1_700_000_000_000 || string(r.GetRecordId()) != "0123456789abcdef" {
		t.Errorf("the envelope reads as %v", &r)
	}
	got, err := g.decode(&r)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(js)
	if err != nil {
		t.Fatal(err)
	}
	want := newMessage(g.field.Message())
	if err := protojson.Unmarshal(text, want.Interface()); err != nil {
		t.Fatalf("a field of an old journal has no name any more: %v", err)
	}
	if !proto.Equal(got, want.Interface()) {
		t.Errorf("reads as\n%v\nwas written as\n%v", got, want.Interface())
	}
}

func newMessage(d protoreflect.MessageDescriptor) protoreflect.Message {
	switch d.Name() {
	case "WorkerFact":
		return (&messages.WorkerFact{}).ProtoReflect().New()
	case "SessionFact":
		return (&messages.SessionFact{}).ProtoReflect().New()
	}
	for _, outer := range []protoreflect.Message{(&messages.WorkerFact{}).ProtoReflect(), (&messages.SessionFact{}).ProtoReflect()} {
		fields := outer.Descriptor().Fields()
		for i := range fields.Len() {
			if fields.Get(i).Message().FullName() == d.FullName() {
				return outer.NewField(fields.Get(i)).Message()
			}
		}
	}
	panic("no fact: " + d.FullName())
}

// fill gives every field a value of its own, made of its name and number.
func fill(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if o := f.ContainingOneof(); o != nil && m.WhichOneof(o) != nil {
			continue
		}
		switch {
		case f.IsList() && f.Message() != nil:
			if depth < 4 {
				fill(m.Mutable(f).List().AppendMutable().Message(), depth+1)
			}
		case f.IsList():
			m.Mutable(f).List().Append(scalar(f))
			m.Mutable(f).List().Append(scalar(f))
		case f.Message() != nil:
			if depth < 4 {
				fill(m.Mutable(f).Message(), depth+1)
			}
		default:
			m.Set(f, scalar(f))
		}
	}
}

func scalar(f protoreflect.FieldDescriptor) protoreflect.Value {
	n := int64(f.Number())
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(string(f.Name()))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(f.Name()))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		vs := f.Enum().Values()
		return protoreflect.ValueOfEnum(vs.Get(vs.Len() - 1).Number())
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(n))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(1000 + n)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(n))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(uint64(1000 + n))
	}
	panic(fmt.Sprintf("field %s: kind %s has no sample yet", f.FullName(), f.Kind()))
}

// TestGoldenJournalFoldsToTheSameHistory replays a whole conversation of an earlier release.
func TestGoldenJournalFoldsToTheSameHistory(t *testing.T) {
	bin, js := filepath.Join("testdata", "golden", "journal.bin"), filepath.Join("testdata", "golden", "journal.json")
	b, err := os.ReadFile(bin)
	if errors.Is(err, fs.ErrNotExist) && *update {
		writeGoldenJournal(t, bin, js)
		b, err = os.ReadFile(bin)
	}
	if err != nil {
		t.Fatal(err)
	}
	var c messages.Commit
	if err := proto.Unmarshal(b, &c); err != nil {
		t.Fatal(err)
	}
	s := &conversation.State{}
	for _, r := range c.GetRecords() {
		if err := s.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(js)
	if err != nil {
		t.Fatal(err)
	}
	want := &messages.History{}
	if err := protojson.Unmarshal(text, want); err != nil {
		t.Fatal(err)
	}
	if got := s.History(); !proto.Equal(got, want) || len(got.GetTurns()) < 3 {
		t.Errorf("folds to\n%v\nwas\n%v", got, want)
	}
}

// writeGoldenJournal keeps the records of a script.
func writeGoldenJournal(t *testing.T, bin, js string) {
	text, err := os.ReadFile("testdata/cancel_with_open_calls.txt")
	if err != nil {
		t.Fatal(err)
	}
	sc := &script{journal: newJournal()}
	for _, line := range strings.Split(string(text), "\n") {
		words, err := split(line)
		if err != nil || len(words) == 0 || words[0] == "|" {
			continue
		}
		if err := sc.run(words, &strings.Builder{}); err != nil {
			t.Fatal(err)
		}
	}
	c := &messages.Commit{FirstCursor: 1, Session: "ses_1"}
	for _, b := range sc.records {
		r := &messages.Record{}
		if err := proto.Unmarshal(b, r); err != nil {
			t.Fatal(err)
		}
		c.Records = append(c.Records, r)
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(c)
	h, err2 := protojson.MarshalOptions{Multiline: true}.Marshal(sc.s.History())
	if err := errors.Join(err, err2, os.WriteFile(bin, b, 0o644), os.WriteFile(js, append(h, '\n'), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// TestFactsAreEncodedWithTheirOwnNumbers holds the wrappers against the descriptors.
func TestFactsAreEncodedWithTheirOwnNumbers(t *testing.T) {
	for _, g := range goldenFacts() {
		fact := newMessage(g.field.Message())
		fill(fact, 0)
		r, err := messages.NewRecord(fact.Interface(), "")
		if err != nil {
			t.Fatal(err)
		}
		back, err := g.decode(r)
		if err != nil || r.GetType() != g.number || !proto.Equal(back, fact.Interface()) {
			t.Errorf("%s: type %d, %v, reads as %v", g.name, r.GetType(), err, back)
		}
		w := newMessage(g.wrap)
		w.Set(g.field, protoreflect.ValueOfMessage(fact))
		opt := proto.MarshalOptions{Deterministic: true}
		a, err1 := opt.Marshal(w.Interface())
		again := w.New().Interface()
		err2 := proto.Unmarshal(r.GetBody(), again)
		b, err3 := opt.Marshal(again)
		if err := errors.Join(err1, err2, err3); err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s: the body is not that of field %d: %v", g.name, g.number, err)
		}
	}
}
