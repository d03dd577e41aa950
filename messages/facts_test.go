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
