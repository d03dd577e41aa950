package client

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// useFile says which request the use of a file that a session keeps is. A path goes as it is, name by name: what it means is for
// the one who has the file.
func useFile(base string, m *messages.UseFile) *call {
	var names []string
	for name := range strings.SplitSeq(m.GetPath(), "/") {
		names = append(names, segment(name))
	}
	where := base + "/" + strings.Join(names, "/")
	switch m.GetAction() {
	case messages.UseFile_READ:
		return get(where, func(body []byte, _ http.Header) (proto.Message, error) { return &messages.Files{Data: body}, nil })
	case messages.UseFile_PUT:
		q := get(where, func(body []byte, _ http.Header) (proto.Message, error) {
			var j messages.FileEntryJSON
			if err := json.Unmarshal(body, &j); err != nil {
				return nil, fmt.Errorf("decode the reply: %w", err)
			}
			return &messages.Files{Entries: []*messages.FileEntry{j.Proto()}}, nil
		})
		q.method, q.raw, q.body = http.MethodPut, true, m.GetData()
		return q
	case messages.UseFile_DELETE:
		q := remove(where)
		q.read = func([]byte, http.Header) (proto.Message, error) { return &messages.Files{}, nil }
		return q
	case messages.UseFile_LIST:
	}
	return get(base, listed[messages.FileEntryJSON](func(v []*messages.FileEntry) proto.Message { return &messages.Files{Entries: v} }), "path", m.GetPath())
}
