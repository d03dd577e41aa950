package troupe

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// ImportOptions say how an exported session is brought in.
type ImportOptions struct {
	NewID     bool // under new ids; without it the session keeps its own, which must be free
	KeepTrust bool // folders and rules as the file says; without it folders are restricted, its rules do not count, and no commands run less confined than is configured here
}

// Import brings a session in that Export wrote. It is checked as a whole before anything is written, and there as a whole or not at
// all. What was open in it is closed: its original may still be at work. A session that is here already, just so, is returned as
// it is; another one under the same id is a *Failure, and so is a file that is not as it was written: it
// names the line.
func (rt *Runtime) Import(ctx context.Context, in io.Reader, o ImportOptions) (*Session, error) {
	m, err := rt.ImportSession(ctx, in, &messages.ImportSession{NewId: o.NewID, KeepTrust: o.KeepTrust})
	if err != nil {
		return nil, err
	}
	return &Session{&Worker{rt: rt, session: m.GetSession().GetId()}}, nil
}

// ImportSession is Import for surfaces: it says all that became of the file.
func (rt *Runtime) ImportSession(ctx context.Context, in io.Reader, m *messages.ImportSession) (*messages.Imported, error) {
	f, err := rt.spool(ctx, in)
	if err != nil {
		return nil, err
	}
	defer func() { _ = errors.Join(f.Close(), os.Remove(f.Name())) }() // the next start clears the folder
	src := fileSource(f)
	v, err := actors.NewSurvey(ctx, src, 0)
	if err == nil {
		err = rt.importable(f, v)
	}
	if err != nil {
		return nil, importFailure(err)
	}
	p := &actors.Copying{
		Source: src, Survey: v, ID: v.Session, Restrict: v.Claims() && !m.GetKeepTrust(), Reason: "open when " + v.Session + " was exported",
		KeepModes: m.GetKeepTrust(),
	}
	if m.GetNewId() {
		p.ID = messages.NewID(messages.SessionPrefix)
	} else if done, err := rt.present(ctx, src, v); done != nil || err != nil {
		return done, err
	}
	if err := p.Write(ctx, rt.svc); err != nil {
		return nil, importFailure(err)
	}
	return &messages.Imported{
		Session: p.View, Origin: v.Session, Records: v.Cursor, ClosedCalls: p.ClosedCalls, ClosedTurns: p.ClosedTurns, Staged: p.Staged,
		Restricted: p.Restrict, Modes: p.Modes,
	}, nil
}

// spool keeps what comes in a file: it is read twice.
func (rt *Runtime) spool(ctx context.Context, in io.Reader) (*os.File, error) {
	f, err := os.CreateTemp(rt.svc.TempDir, "import-")
	if err != nil {
		return nil, fmt.Errorf("make a file for the import: %w", err)
	}
	if _, err := io.Copy(f, &bounded{ctx, in}); err != nil {
		return nil, errors.Join(fmt.Errorf("read the export: %w", err), f.Close(), os.Remove(f.Name()))
	}
	return f, nil
}

// bounded is a reader that ends with a context.
type bounded struct {
	ctx context.Context //nolint:containedctx // io.Reader has no room for it
	in  io.Reader
}

func (b *bounded) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, context.Cause(b.ctx)
	}
	return b.in.Read(p)
}

// importable refuses a file that holds together and still is no session that can be here. The line of a record is the next one
// behind its number: the header comes first.
func (rt *Runtime) importable(f io.ReadSeeker, v *actors.Survey) error {
	if v.Damage != nil {
		return &wrongLine{int(v.Cursor) + 2, v.Damage.Error()} //nolint:gosec // a file of that many lines was read
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("read the file: %w", err)
	}
	r, err := newImportReader(f)
	if err != nil {
		return err
	}
	if r.header.Session != v.Session {
		return &wrongLine{1, fmt.Sprintf("the header is of session %s, the records are of %s", r.header.Session, v.Session)}
	}
	if at, why := v.Misplaced(); why != "" {
		return &wrongLine{int(at) + 1, why} //nolint:gosec // a file of that many lines was read
	}
	return nil
}

// importFailure makes what is wrong with a file a refusal.
func importFailure(err error) error {
	var wrong *wrongLine
	var refused *messages.Failure
	switch {
	case errors.As(err, &wrong):
		return messages.Fail(messages.CodeBadRequest, wrong.Error(), "nothing was imported")
	case errors.As(err, &refused):
		return refused
	}
	return fmt.Errorf("import: %w", err)
}

// present compares the file with the session of the same id: nil when there is none.
func (rt *Runtime) present(ctx context.Context, src actors.Source, v *actors.Survey) (*messages.Imported, error) {
	head, err := rt.svc.Store.Cursor(ctx, v.Session)
	if err != nil || head == 0 {
		return nil, err
	}
	differ := func(format string, args ...any) error {
		return messages.Fail(messages.CodeConflict, fmt.Sprintf("session %s exists, and is not the same: ", v.Session)+fmt.Sprintf(format, args...),
			"bring it in beside the other with --new-id; nothing was imported")
	}
	listed, err := actors.Listed(ctx, rt.svc.Store, v.Session)
	switch {
	case err != nil:
		return nil, err
	case !listed:
		return nil, messages.Fail(messages.CodeConflict, fmt.Sprintf("session %s was deleted here", v.Session),
			"bring it in again with --new-id; nothing was imported")
	}
	if err := actors.Whole(ctx, rt.svc.Store, v.Session, "compared with the file"); err != nil {
		return nil, err
	}
	if head < v.Cursor {
		return nil, differ("it has %d records, the file has %d", head, v.Cursor)
	}
	var sums [][32]byte
	err = src(ctx, func(e persistence.Entry) error {
		sum, err := entrySum(e)
		sums = append(sums, sum)
		return err
	})
	if err != nil {
		return nil, importFailure(err)
	}
	err = rt.svc.Store.ReadSession(ctx, v.Session, 0, func(e persistence.Entry) error {
		if e.Cursor > v.Cursor {
			if !v.Closes(e) {
				return differ("it has gone on since, to record %d; the file has %d", head, v.Cursor)
			}
			return nil
		}
		sum, err := entrySum(e)
		if err == nil && sum != sums[e.Cursor-1] {
			return differ("record %d is another one", e.Cursor)
		}
		return err
	})
	if err != nil {
		return nil, importFailure(err)
	}
	view, err := rt.session(ctx, v.Session)
	if err != nil {
		return nil, err
	}
	return &messages.Imported{Session: view, Origin: v.Session, Records: v.Cursor, Identical: true}, nil
}

// entrySum is the sum of a record as it is exported, whatever activation wrote it.
func entrySum(e persistence.Entry) ([32]byte, error) {
	x, err := exported(e)
	if err != nil {
		return [32]byte{}, err
	}
	x.Epoch = 0
	raw, err := plainJSON(x)
	if err != nil {
		return [32]byte{}, fmt.Errorf("encode record %d: %w", e.Cursor, err)
	}
	return sha256.Sum256(raw), nil
}
