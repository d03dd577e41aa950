package e2e

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/client"
	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
)

// porter is what a surface copies sessions with, whichever side of the socket it is on.
type porter interface {
	Export(ctx context.Context, session string, w io.Writer) error
	ImportSession(ctx context.Context, in io.Reader, m *messages.ImportSession) (*messages.Imported, error)
}

var (
	_ porter         = (*troupe.Runtime)(nil)
	_ porter         = (*client.Client)(nil)
	_ gateway.Porter = (*troupe.Runtime)(nil)
)

// TestASessionTravelsOverTheSocketAndIsTheSame exports through the client, and directly, and brings it into another house
// through that one's.
func TestASessionTravelsOverTheSocketAndIsTheSame(t *testing.T) {
	a, b := newHouse(t), newHouse(t)
	s, err := a.rt.Session(t.Context(), troupe.SessionOptions{Dir: a.folder, Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"read note.txt", strings.Repeat("a long story ", 60_000)} { // larger than what is held back
		if _, err := s.Run(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	from, to := a.dial(t), b.dial(t)
	var direct, remote bytes.Buffer
	if err := errors.Join(a.rt.Export(t.Context(), s.ID(), &direct), from.Export(t.Context(), s.ID(), &remote)); err != nil {
		t.Fatal(err)
	}
	if direct.String() != remote.String() || direct.Len() < 1<<20 {
		t.Fatalf("%d bytes directly, %d over the socket", direct.Len(), remote.Len())
	}
	in, err := to.ImportSession(t.Context(), &remote, &messages.ImportSession{})
	if err != nil || in.GetSession().GetId() != s.ID() || !in.GetRestricted() || in.GetRecords() == 0 {
		t.Fatalf("%v %v", in, err)
	}
	again, err := to.ImportSession(t.Context(), bytes.NewReader(direct.Bytes()), &messages.ImportSession{KeepTrust: true})
	if err != nil || !again.GetIdentical() {
		t.Errorf("%v %v", again, err)
	}
	other, err := to.ImportSession(t.Context(), bytes.NewReader(direct.Bytes()), &messages.ImportSession{NewId: true, KeepTrust: true})
	if err != nil || other.GetSession().GetId() == s.ID() || other.GetRestricted() {
		t.Errorf("%v %v", other, err)
	}
	got, err := b.rt.Open(t.Context(), s.ID())
	if err != nil {
		t.Fatal(err)
	}
	if r, err := got.Run(t.Context(), "hello"); err != nil || r.Text != "You said hello" {
		t.Errorf("%v %v", r, err)
	}
}

func TestRefusalsOfCopiesComeOverTheSocketAsTheyAre(t *testing.T) {
	h := newHouse(t)
	c := h.dial(t)
	for how, p := range map[string]porter{"directly": h.rt, "over the socket": c} {
		var out bytes.Buffer
		var f *messages.Failure
		if err := p.Export(t.Context(), "ses_none", &out); !errors.As(err, &f) || f.GetCode() != messages.CodeNotFound || out.Len() != 0 {
			t.Errorf("%s: export of nothing: %v, %d bytes", how, err, out.Len())
		}
		_, err := p.ImportSession(t.Context(), strings.NewReader("nonsense\n"), &messages.ImportSession{})
		if !errors.As(err, &f) || f.GetCode() != messages.CodeBadRequest || !strings.Contains(f.GetMessage(), "line 1: ") {
			t.Errorf("%s: import of nonsense: %v", how, err)
		}
	}
}

// cutOff is a house whose export breaks off in the middle.
type cutOff struct{ echo }

func (*cutOff) Export(_ context.Context, _ string, w io.Writer) error {
	if _, err := w.Write(make([]byte, 1<<20)); err != nil {
		return err
	}
	return errors.New("the disk is gone")
}

func (*cutOff) ImportSession(context.Context, io.Reader, *messages.ImportSession) (*messages.Imported, error) {
	return nil, errors.New("no")
}

func TestAnExportThatBreaksOffIsNotTakenForWhole(t *testing.T) {
	c := dialBackend(t, &cutOff{})
	if err := c.Export(t.Context(), "ses_1", io.Discard); err == nil {
		t.Error("it was taken for whole")
	}
	plain := dialBackend(t, &echo{})
	var f *messages.Failure
	if err := plain.Export(t.Context(), "ses_1", io.Discard); !errors.As(err, &f) || f.GetCode() != messages.CodeNotFound {
		t.Errorf("a house that cannot export: %v", err)
	}
}
