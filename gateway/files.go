package gateway

import (
	"io"
	"net/http"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

// fileType is the content type of a file that a session keeps, whatever it holds: no browser makes a page of it.
const fileType = "application/octet-stream"

// files lists what a session keeps, below a folder or all of it.
func (a *api) files(_ http.ResponseWriter, r *http.Request) (answer, error) {
	q, err := query(r, "path")
	if err != nil {
		return answer{}, err
	}
	f, err := a.useFile(r, &messages.UseFile{Path: q.Get("path")})
	if err != nil {
		return answer{}, err
	}
	return ok(f.JSON())
}

// file sends the content of one.
func (a *api) file(w http.ResponseWriter, r *http.Request) {
	f, err := a.useFile(r, &messages.UseFile{Action: messages.UseFile_READ, Path: r.PathValue("path")})
	if err != nil {
		a.fail(w, r, err)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Disposition", "attachment")
	w.Header().Set("Content-Type", fileType)
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime)) // not every writer has one
	_, _ = w.Write(f.GetData())                                                   // the client may be gone
}

// putFile takes the content of one. It waits until no agent works there: a long poll.
func (a *api) putFile(w http.ResponseWriter, r *http.Request) (answer, error) {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, a.opts.MaxBody))
	if err != nil {
		return answer{}, a.unread(err)
	}
	f, err := a.useFile(r, &messages.UseFile{Action: messages.UseFile_PUT, Path: r.PathValue("path"), Data: data})
	if err != nil {
		return answer{}, err
	}
	return ok(f.GetEntries()[0].JSON())
}

func (a *api) deleteFile(_ http.ResponseWriter, r *http.Request) (answer, error) {
	if _, err := a.useFile(r, &messages.UseFile{Action: messages.UseFile_DELETE, Path: r.PathValue("path")}); err != nil {
		return answer{}, err
	}
	return nothing()
}

func (a *api) useFile(r *http.Request, m *messages.UseFile) (*messages.Files, error) {
	ctx, cancel := a.untilStopped(r.Context())
	defer cancel()
	return ask[*messages.Files](ctx, a, &messages.ToSession{SessionId: r.PathValue("id"), Command: &messages.ToSession_UseFile{UseFile: m}})
}
