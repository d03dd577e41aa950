package conversation

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/messages"
)

// The hash of a request stands in journals: it is the same for ever.
func TestTheHashOfARequestIsOfItsFieldsBehindTheirLengths(t *testing.T) {
	t.Parallel()
	all := []*messages.Message{
		{Role: messages.User, Text: "Please read note.txt."},
		{Role: messages.Assistant, Text: "I read.", ToolCalls: []*messages.ToolCall{{Id: "1", Name: "read_file", Arguments: `{"path":"a"}`}, {Id: "2", Name: "list"}}},
		{Role: messages.ToolRole, ToolCallID: "1", Text: strings.Repeat("long ", 1000)},
	}
	var chain, want [sha256.Size]byte
	for _, m := range all {
		h := sha256.New()
		h.Write(want[:])
		put(h, string(m.Role), m.Text, m.ToolCallID)
		for _, c := range m.ToolCalls {
			put(h, c.GetId(), c.GetName(), c.GetArguments())
		}
		h.Sum(want[:0])
		if chain = link(chain, m); chain != want {
			t.Fatalf("the hash up to %q is %x, not %x", m.Text[:4], chain, want)
		}
	}
	if got := hex.EncodeToString(chain[:8]); got != "8405f0181f68dd28" {
		t.Errorf("the last hash begins with %s", got)
	}
}

func put(h hash.Hash, fields ...string) {
	for _, s := range fields {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(s))))
		h.Write([]byte(s))
	}
}
