package actors

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/troupe-dev/troupe/messages"
)

const (
	// maxCommand is the largest command that is taken, in bytes: an append of it fits a blob.
	maxCommand = 32 << 20
	// maxAnswer is the largest answer of a model that is taken, in bytes.
	maxAnswer = 16 << 20
	// maxResult is the most that a call's result may weigh, in bytes. Tools have limits of their own;
	// this one holds for those that do not.
	maxResult = 1 << 20
)

// unfit says why a command cannot be taken, nil when it can: what cannot be written down is refused at
// the door, before anybody has decided anything on it.
func (s *Supervisor) unfit(m proto.Message) *messages.Failure {
	n := proto.Size(m)
	if n > maxCommand {
		return messages.Fail(messages.CodeTooLarge, fmt.Sprintf("the command has %d bytes, more than %d", n, maxCommand), "send less, or refer to files")
	}
	b, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(s.scratch[:0], m) // it looks at every text
	if err != nil {
		return messages.Fail(messages.CodeBadRequest, "the command holds text that is not UTF-8", "encode it first")
	}
	if cap(b) <= keptScratch {
		s.scratch = b
	}
	return nil
}

// keptScratch is the room, in bytes, that is kept for looking at commands: most need less.
const keptScratch = 16 << 10

// mend gives a fact whose text is all valid UTF-8: what models, tools and errors said is kept as far as
// it can be written down. The fact itself may hold what others have, and stays as it is.
func mend[M proto.Message](m M) M {
	out := proto.CloneOf(m)
	eachText(out.ProtoReflect(), mended)
	return out
}

func mended(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// eachText replaces every string in a message by what fn makes of it.
func eachText(m protoreflect.Message, fn func(string) string) {
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		text, nested := fd.Kind() == protoreflect.StringKind, fd.Kind() == protoreflect.MessageKind
		switch {
		case fd.IsMap() || !text && !nested: // no message of ours has a map
		case fd.IsList():
			for list, i := v.List(), 0; i < list.Len(); i++ {
				if nested {
					eachText(list.Get(i).Message(), fn)
				} else if s := list.Get(i).String(); fn(s) != s {
					list.Set(i, protoreflect.ValueOfString(fn(s)))
				}
			}
		case nested:
			eachText(v.Message(), fn)
		default:
			if s := v.String(); fn(s) != s {
				m.Set(fd, protoreflect.ValueOfString(fn(s)))
			}
		}
		return true
	})
}

// cut shortens a text to at most limit bytes, at the border of a character.
func cut(s string, limit int) (string, bool) {
	if len(s) <= limit {
		return s, false
	}
	return cutOf(s, len(s), limit), true
}

// cutOf cuts what is known of a text of so many bytes, which is more than the limit.
func cutOf(s string, whole, limit int) string {
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return fmt.Sprintf("%s\n... [%d bytes truncated] ...", s[:limit], whole-limit)
}

// shallow is a message like m, whose fields may be set: m was sent, and is others' too. What is in them both share.
func shallow[M proto.Message](m M) M {
	out := m.ProtoReflect().New()
	m.ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		out.Set(fd, v)
		return true
	})
	return out.Interface().(M) //nolint:forcetypeassert // it was made of one
}
