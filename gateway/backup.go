package gateway

import (
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// backuper is a backend that can be backed up.
type backuper interface {
	Backup(ctx context.Context, w io.Writer, since *messages.BackupMark) error
}

// backup streams a backup. An error after its first bytes cuts the connection: the copy lacks its
// end, by which it would prove to be whole.
func (a *api) backup(w http.ResponseWriter, r *http.Request) {
	b, ok := a.backend.(backuper)
	if !ok {
		a.fail(w, r, refusal(messages.CodeBadRequest, "this store cannot be backed up"))
		return
	}
	since, err := sinceOf(r)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	out := &backupBody{w: w, rc: http.NewResponseController(w)}
	if err := b.Backup(r.Context(), out, since); err != nil {
		if !out.begun {
			a.fail(w, r, err)
			return
		}
		a.log.Warn("backup was cut off", "err", err)
		panic(http.ErrAbortHandler) //nolint:forbidigo // how net/http cuts a connection
	}
}

// sinceOf reads the mark of an earlier backup.
func sinceOf(r *http.Request) (*messages.BackupMark, error) {
	q, err := query(r, "since")
	if err != nil || q.Get("since") == "" {
		return nil, err
	}
	raw, err := base64.RawURLEncoding.DecodeString(q.Get("since"))
	since := &messages.BackupMark{}
	if err == nil {
		err = proto.Unmarshal(raw, since)
	}
	if err != nil {
		return nil, bad("since is no mark of a backup: %v", err)
	}
	return since, nil
}

// backupBody gives each write its time.
type backupBody struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	begun bool
}

// Write passes bytes on, after the head of the answer.
func (b *backupBody) Write(p []byte) (int, error) {
	if !b.begun {
		b.begun = true
		b.w.Header().Set("Content-Type", "application/octet-stream")
		b.w.Header().Set("Cache-Control", "no-store")
	}
	_ = b.rc.SetWriteDeadline(time.Now().Add(writeTime)) // not every writer has one
	return b.w.Write(p)
}
