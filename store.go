package troupe

import (
	"context"
	"fmt"
	"strings"

	"github.com/troupe-dev/troupe/messages"
)

// NeededStream names the stream that an entry of the store's index is about, "" when it is about none: an
// entry without its stream leads nowhere.
func NeededStream(indexKey string) string {
	kind, rest, _ := strings.Cut(indexKey, "/")
	switch kind {
	case "ses":
		return messages.SessionStream(rest)
	case "wrk":
		_, worker, _ := strings.Cut(rest, "/")
		return messages.WorkerStream(worker)
	}
	return ""
}

// verifyIndex finds listing entries that lead nowhere.
func (rt *Runtime) verifyIndex(ctx context.Context, out *messages.Verified) error {
	var lost []string
	err := rt.svc.Store.Index(ctx, "", func(key string, _ []byte) error {
		stream := NeededStream(key)
		if stream == "" {
			return nil
		}
		head, err := rt.svc.Store.Head(ctx, stream)
		if err == nil && head == 0 {
			lost = append(lost, fmt.Sprintf("index entry %s is about stream %s, which does not exist", key, stream))
		}
		return nil // a stream that does not read was found already
	})
	if err != nil {
		return fmt.Errorf("verify the index: %w", err)
	}
	for _, problem := range lost {
		out.Findings = append(out.Findings, &messages.Finding{Problem: problem})
	}
	return nil
}

// progresser is a store that says how far a long work of its has come.
type progresser interface {
	Progress() int64
}

// Progress counts the records that Verify has looked at since the runtime began, 0 when its store does not say.
func (rt *Runtime) Progress() int64 {
	if p, ok := rt.svc.Store.(progresser); ok {
		return p.Progress()
	}
	return 0
}
