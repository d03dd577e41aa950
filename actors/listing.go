package actors

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// What waits for a person is listed without waking its session, from entries whose sum the store bounds. Long arguments and previews are
// cut there, where a reader sees it; the journal, and what is asked of the program itself, has them whole.

// listingRoom is what the arguments, or the preview, of one listed call may weigh when a turn has so many calls open.
func listingRoom(t *conversation.Turn) int {
	const parts = 4 // arguments and preview, each escaped to twice its length at most
	return persistence.MaxSecondary / 2 / parts / max(1, len(t.Calls))
}

// cutText keeps the beginning of a text that is longer than the room, and says how much is missing.
func cutText(text string, room int) string {
	if len(text) <= room {
		return text
	}
	end := room
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return fmt.Sprintf("%s\n… %d more bytes are not listed", text[:end], len(text)-end)
}

// cutArguments keeps the beginnings of the long strings in a call's arguments, which stay JSON.
func cutArguments(arguments string, room int) string {
	if len(arguments) <= room {
		return arguments
	}
	var v any
	d := json.NewDecoder(bytes.NewReader([]byte(arguments)))
	d.UseNumber()
	if d.Decode(&v) == nil {
		for each := room / 2; each >= 64; each /= 4 {
			if b, err := json.Marshal(cutStrings(v, each)); err == nil && len(b) <= room {
				return string(b)
			}
		}
	}
	b, err := json.Marshal(cutText(arguments, room/4))
	if err != nil {
		return ""
	}
	return string(b)
}

func cutStrings(v any, each int) any {
	switch v := v.(type) {
	case string:
		return cutText(v, each)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = cutStrings(v[i], each)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k := range v {
			out[k] = cutStrings(v[k], each)
		}
		return out
	}
	return v
}

// cutApproval is a question as it is listed.
func cutApproval(v *messages.ApprovalView, room int) *messages.ApprovalView {
	v.Arguments, v.Preview = cutArguments(v.GetArguments(), room), cutText(v.GetPreview(), room)
	return v
}

// entries are those of a listing whose keys have a prefix.
func entries[T any, P interface {
	*T
	proto.Message
}](ctx context.Context, store persistence.Store, prefix string) (out []P, err error) {
	err = store.Index(ctx, prefix, func(key string, value []byte) error {
		v := P(new(T))
		if err := proto.Unmarshal(value, v); err != nil {
			return fmt.Errorf("decode listing entry %s: %w", key, err)
		}
		out = append(out, v)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
