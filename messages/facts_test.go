package messages_test

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/troupe-dev/troupe/messages"
)

// A record holds the message of its journal, whatever way it was encoded in: every fact there is, and none that is not.
func TestARecordHoldsItsJournalsMessage(t *testing.T) {
	for _, journal := range []proto.Message{&messages.WorkerFact{}, &messages.SessionFact{}} {
		fields := journal.ProtoReflect().Descriptor().Oneofs().ByName("fact").Fields()
		for i := range fields.Len() {
			field := fields.Get(i)
			whole := journal.ProtoReflect().New()
			fact := whole.Mutable(field).Message()
			for texts, n := fact.Descriptor().Fields(), 0; n < texts.Len(); n++ {
				if f := texts.Get(n); f.Kind() == protoreflect.StringKind && !f.IsList() && !f.IsMap() {
					fact.Set(f, protoreflect.ValueOfString("text of "+string(f.Name())))
				}
			}
			r, err := messages.NewRecord(fact.Interface(), "turn")
			if err != nil {
				t.Errorf("%s: %v", field.Name(), err)
				continue
			}
			want, err := proto.Marshal(whole.Interface())
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(r.GetBody(), want) || r.GetType() != uint32(field.Number()) || r.GetTurnId() != "turn" {
				t.Errorf("%s: type %d, body %x, not type %d, body %x", field.Name(), r.GetType(), r.GetBody(), field.Number(), want)
			}
			read := messages.WorkerFactIn
			if _, session := journal.(*messages.SessionFact); session {
				read = messages.SessionFactIn
			}
			back, err := read(r)
			if err != nil || !proto.Equal(back, fact.Interface()) {
				t.Errorf("%s: read back as %v, %v", field.Name(), back, err)
			}
		}
	}
	if _, err := messages.NewRecord(&messages.Ack{}, ""); err == nil {
		t.Error("a message that is no fact has a record")
	}
	if _, err := messages.NewRecord(&messages.Panicked{Reason: "\xff"}, ""); err == nil {
		t.Error("text that is not UTF-8 is written down")
	}
}

func TestRecordsOfOneAppendAreThoseOfItsFactsAlone(t *testing.T) {
	t.Parallel()
	facts := []proto.Message{
		&messages.TurnStarted{TurnId: "turn", InputIds: []string{"input"}}, &messages.GenerationStarted{GenId: "gen", Step: 1}, &messages.Suspended{},
	}
	all, err := messages.NewRecords(facts, "turn")
	if err != nil || len(all) != len(facts) {
		t.Fatalf("%d records: %v", len(all), err)
	}
	for i, f := range facts {
		alone, err := messages.NewRecord(f, "turn")
		if err != nil || !proto.Equal(alone, all[i]) {
			t.Errorf("%T is %v with others, and %v alone: %v", f, all[i], alone, err)
		}
		if cap(all[i].GetBody()) != len(all[i].GetBody()) {
			t.Errorf("what is appended to the body of %T would write into the next one's", f)
		}
	}
	for _, bad := range []proto.Message{&messages.Ack{}, &messages.Panicked{Reason: "\xff"}} {
		if _, err := messages.NewRecords(append(facts[:2:2], bad), ""); err == nil {
			t.Errorf("%T became a record", bad)
		}
	}
}

func TestRecordsOfOneAppendTakeFewAllocations(t *testing.T) { //nolint:paralleltest // allocations are counted for the process
	facts := []proto.Message{&messages.TurnStarted{TurnId: "turn", InputIds: []string{"input"}}, &messages.GenerationStarted{GenId: "gen"}, &messages.Suspended{}, &messages.Suspended{}}
	n := testing.AllocsPerRun(100, func() {
		if _, err := messages.NewRecords(facts, "turn"); err != nil {
			t.Fatal(err)
		}
	})
	if n > 4 { // three are needed
		t.Errorf("%d records take %v allocations", len(facts), n)
	}
}
