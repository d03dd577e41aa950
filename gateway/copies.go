package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

// Porter is a Backend that can write a session to a file and read it back. Without it there are no such routes.
type Porter interface {
	// Export writes a session. A refusal is a *messages.Failure, and comes before anything is written.
	Export(ctx context.Context, session string, w io.Writer) error
	// ImportSession reads what Export wrote.
	ImportSession(ctx context.Context, in io.Reader, m *messages.ImportSession) (*messages.Imported, error)
}

// exportType is the content type of an exported session.
const exportType = "application/x-ndjson"

// fork makes a session that goes on from a record of another one.
func (a *api) fork(w http.ResponseWriter, r *http.Request) (answer, error) {
	var body messages.ForkJSON
	if err := a.read(w, r, &body); err != nil {
		return answer{}, err
	}
	m, err := body.Proto(r.PathValue("id"))
	if err != nil {
		return answer{}, err
	}
	f, err := ask[*messages.Forked](r.Context(), a, m)
	if err != nil {
		return answer{}, err
	}
	return answer{
		status: http.StatusCreated, body: f.JSON(), header: map[string]string{"Location": sessionPath + f.GetSession().GetId()},
	}, nil
}

// export streams a session. What fails before the first piece is on its way is a problem; later, the connection is cut, so that
// nobody takes the file for whole.
func (a *api) export(w http.ResponseWriter, r *http.Request) {
	p, can := a.backend.(Porter)
	if !can {
		a.problem(w, r, 0, messages.Fail(messages.CodeNotFound, "sessions are not exported here", ""))
		return
	}
	if _, err := query(r); err != nil {
		a.fail(w, r, err)
		return
	}
	ctx, cancel := a.untilStopped(r.Context())
	defer cancel()
	out := &lateWriter{w: w, session: r.PathValue("id")}
	err := p.Export(ctx, out.session, out)
	switch {
	case err == nil && out.flush() == nil:
	case !out.begun:
		a.fail(w, r, err)
	default:
		a.log.Warn("export was cut off", "session", out.session, "err", err)
		panic(http.ErrAbortHandler) //nolint:forbidigo // net/http asks for it: the connection is cut
	}
}

// lateWriter holds the first piece of an answer back, until it is known that there is one.
type lateWriter struct {
	w       http.ResponseWriter
	session string
	held    []byte
	begun   bool
}

const lateBytes = 256 << 10

func (l *lateWriter) Write(p []byte) (int, error) {
	if !l.begun && len(l.held)+len(p) <= lateBytes {
		l.held = append(l.held, p...)
		return len(p), nil
	}
	if err := l.flush(); err != nil {
		return 0, err
	}
	l.patience()
	return l.w.Write(p)
}

// flush begins the answer.
func (l *lateWriter) flush() error {
	if l.begun {
		return nil
	}
	l.begun = true
	l.w.Header().Set("Content-Type", exportType)
	l.w.Header().Set("Content-Disposition", `attachment; filename="`+l.session+`.jsonl"`)
	l.patience()
	_, err := l.w.Write(l.held)
	l.held = nil
	return err
}

// patience is for the next piece only: a whole session may take its time.
func (l *lateWriter) patience() {
	_ = http.NewResponseController(l.w).SetWriteDeadline(time.Now().Add(writeTime)) // not every writer has one
}

// importSession reads an exported session from the body, which may be of any size.
func (a *api) importSession(w http.ResponseWriter, r *http.Request) (answer, error) {
	p, can := a.backend.(Porter)
	if !can {
		return answer{}, refusal(messages.CodeNotFound, "sessions are not imported here")
	}
	q, err := query(r, "new_id", "keep_trust")
	if err != nil {
		return answer{}, err
	}
	m := &messages.ImportSession{}
	for name, into := range map[string]*bool{"new_id": &m.NewId, "keep_trust": &m.KeepTrust} {
		switch v := q.Get(name); v {
		case "", "false":
		case "true":
			*into = true
		default:
			return answer{}, bad("%s %q is not true or false", name, v)
		}
	}
	ctx, cancel := a.untilStopped(r.Context())
	defer cancel()
	body := &patientReader{in: r.Body, rc: http.NewResponseController(w), piece: a.opts.BodyTime}
	in, err := p.ImportSession(ctx, body, m)
	if err != nil && body.failed != nil {
		err = a.unread(body.failed)
	}
	if err != nil {
		return answer{}, err
	}
	status := http.StatusCreated
	if in.GetIdentical() {
		status = http.StatusOK
	}
	return answer{status: status, body: in.JSON(), header: map[string]string{"Location": sessionPath + in.GetSession().GetId()}}, nil
}

// patientReader gives each piece of a body its time.
type patientReader struct {
	in     io.Reader // lifts the bound at its end
	rc     *http.ResponseController
	piece  time.Duration
	failed error // why it was not read to its end
}

func (p *patientReader) Read(b []byte) (int, error) {
	_ = p.rc.SetReadDeadline(time.Now().Add(p.piece)) // not every writer has one
	n, err := p.in.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		p.failed = err
	}
	return n, err
}
