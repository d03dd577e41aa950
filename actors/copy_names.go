package actors

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/troupe-dev/troupe/messages"
)

// naming gives a copy ids of its own: of the session, its workers, turns, generations, calls, approvals and rules. What clients
// and providers have named keeps its name, and so does what others own. A nil *naming changes nothing.
type naming struct {
	known map[string]string
	home  [2]string // the end of the address of the session's own workspace, before and after
	made  [2]string // the middle of the addresses of the copies that were made for it
}

// newNaming begins with the session and its workers: other ids of their kind are others'.
func newNaming(v *Survey, session string) *naming {
	n := &naming{known: map[string]string{v.Session: session}, home: [2]string{"/sessions/" + v.Session, "/sessions/" + session}}
	n.made = [2]string{":/copies/" + v.Session + "/", ":/copies/" + session + "/"}
	for _, w := range v.order {
		n.known[w] = messages.NewID(messages.WorkerPrefix)
	}
	return n
}

// id is the new name of an id, made when it is first met.
func (n *naming) id(old string) string {
	if n == nil {
		return old
	}
	if id, ok := n.known[old]; ok {
		return id
	}
	for _, prefix := range []string{messages.TurnPrefix, messages.GenerationPrefix, messages.ExecPrefix, messages.ApprovalPrefix, messages.ConversationPrefix} {
		if strings.HasPrefix(old, prefix) {
			n.known[old] = messages.NewID(prefix)
			return n.known[old]
		}
	}
	return old
}

// stream is the new name of a stream.
func (n *naming) stream(old string) string {
	kind, id, _ := strings.Cut(old, "/")
	return kind + "/" + n.id(id)
}

// address is an address with the session's own workspace renamed.
func (n *naming) address(old string) string {
	if before, ok := strings.CutSuffix(old, n.home[0]); ok {
		return before + n.home[1]
	}
	if host, copied, ok := strings.Cut(old, n.made[0]); ok && !strings.ContainsAny(host, ":/") {
		return host + n.made[1] + copied
	}
	return old
}

// renamed says which string fields of facts hold an id of ours, and which an address; all others stay.
func renamed(field protoreflect.Name) (id, address bool) {
	switch field {
	case "session_id", "worker_id", "turn_id", "gen_id", "exec_id", "approval_id", "rule_id", "parent", "conversation", "conversation_id", "worker":
		return true, false
	case "uri", "workspace", "folder", "source", "copy_of":
		return false, true
	}
	return false, false
}

// fact renames what a fact refers to, in place.
func (n *naming) fact(f proto.Message) {
	if n == nil {
		return
	}
	if r, ok := f.(*messages.RuleAdded); ok { // those of the whole store keep theirs
		n.known[r.GetRuleId()] = messages.NewID(messages.RulePrefix)
	}
	n.message(f.ProtoReflect())
}

func (n *naming) message(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
		case f.Message() != nil && f.IsList():
			for i := range v.List().Len() {
				n.message(v.List().Get(i).Message())
			}
		case f.Message() != nil:
			n.message(v.Message())
		case f.Kind() == protoreflect.StringKind && !f.IsList():
			if id, address := renamed(f.Name()); id {
				m.Set(f, protoreflect.ValueOfString(n.id(v.String())))
			} else if address {
				m.Set(f, protoreflect.ValueOfString(n.address(v.String())))
			}
		}
		return true
	})
}
