package troupe

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// An exported session is one file of JSON lines: a header, every record of every stream in order of the session's cursor, and a
// trailer. docs/export.md has the format.
const (
	exportFormat  = "troupe.session"
	exportVersion = 1
	// maxExportLine is the longest line, in bytes without its end.
	maxExportLine = 64 << 20
	// sumSize is how many hex digits of a line's sum are kept.
	exportSum = 16
)

// The lines. Each is an object with one of the three, and a sum.
type (
	exportHeader struct {
		Format  string `json:"format"`
		Version int    `json:"version"`
		Session string `json:"session"`
		// LeftOut are the folders of which the session, or a worker of it, works in a copy: its files are not in the file.
		LeftOut []string `json:"left_out,omitempty"`
	}
	exportRecord struct {
		Cursor    uint64          `json:"cursor"`
		Stream    string          `json:"stream"`
		Seq       uint64          `json:"seq"`
		Epoch     uint64          `json:"epoch"`
		ID        string          `json:"id,omitempty"` // hex
		Type      uint32          `json:"type"`
		Schema    uint32          `json:"schema"`
		AtMs      int64           `json:"at_unix_ms"`
		Causation string          `json:"causation,omitempty"`
		Turn      string          `json:"turn,omitempty"`
		Ignorable bool            `json:"ignorable,omitempty"`
		Fact      json.RawMessage `json:"fact,omitempty"` // in the JSON form of protobuf
		Body      []byte          `json:"body,omitempty"` // base64, of a fact that this version does not know in full
	}
	exportTrailer struct {
		Records uint64 `json:"records"`
		Streams int    `json:"streams"`
		SHA256  string `json:"sha256"` // of every byte before this line
	}
)

// Export writes a session as one self-contained file. The session is read from the store as it is at that moment, and not
// woken. What the file holds is as secret as the conversation itself; of what it does not hold, its first line names the folders of
// which the session works in a copy. A refusal is a *Failure.
func (rt *Runtime) Export(ctx context.Context, session string, w io.Writer) error {
	head, err := rt.exportable(ctx, session)
	if err != nil {
		return err
	}
	left, err := actors.LeftOut(ctx, rt.svc.Store, session, head)
	if err != nil {
		return err
	}
	out := &exporter{w: w, all: sha256.New(), streams: make(map[string]bool)}
	if err := out.line("header", exportHeader{Format: exportFormat, Version: exportVersion, Session: session, LeftOut: left}); err != nil {
		return err
	}
	err = rt.svc.Store.ReadSession(ctx, session, 0, func(e persistence.Entry) error {
		if e.Cursor > head {
			return errEnough
		}
		return out.record(e)
	})
	if err != nil && !errors.Is(err, errEnough) {
		return fmt.Errorf("export %s: %w", session, err)
	}
	sum := hex.EncodeToString(out.all.Sum(nil))
	return out.line("trailer", exportTrailer{Records: out.records, Streams: len(out.streams), SHA256: sum})
}

// exportable returns the last cursor of a session that is there.
func (rt *Runtime) exportable(ctx context.Context, session string) (uint64, error) {
	if !messages.ValidID(messages.SessionPrefix, session) {
		return 0, actors.NoSession(session)
	}
	listed, err := actors.Listed(ctx, rt.svc.Store, session)
	if err != nil {
		return 0, err
	}
	head, err := rt.svc.Store.Cursor(ctx, session)
	if err != nil {
		return 0, fmt.Errorf("find the newest record of %s: %w", session, err)
	}
	if head == 0 || !listed {
		return 0, actors.NoSession(session)
	}
	return head, actors.Whole(ctx, rt.svc.Store, session, "exported")
}

// exporter writes lines and sums up what it has written.
type exporter struct {
	w       io.Writer
	all     hash.Hash // over every byte
	last    string    // sum of the line before
	records uint64
	streams map[string]bool
}

func (x *exporter) record(e persistence.Entry) error {
	r, err := exported(e)
	if err != nil {
		return err
	}
	x.records++
	x.streams[e.Stream] = true
	return x.line("record", r)
}

// line writes {"KIND":VALUE,"sum":"..."}. The value's bytes are what is summed, together with the sum before it.
func (x *exporter) line(kind string, value any) error {
	raw, err := plainJSON(value)
	if err != nil {
		return fmt.Errorf("encode the %s: %w", kind, err)
	}
	x.last = lineSum(x.last, raw)
	line := make([]byte, 0, len(raw)+64)
	line = append(line, `{"`+kind+`":`...)
	line = append(line, raw...)
	line = append(line, `,"sum":"`+x.last+`"}`...)
	if len(line) > maxExportLine {
		return messages.Fail(messages.CodeTooLarge, fmt.Sprintf("the line of the %s has %d bytes, more than %d", kind, len(line), maxExportLine), "")
	}
	line = append(line, '\n')
	x.all.Write(line)
	if _, err := x.w.Write(line); err != nil {
		return fmt.Errorf("write the export: %w", err)
	}
	return nil
}

// lineSum chains the sums of the lines, so that each line knows the one before.
func lineSum(before string, raw []byte) string {
	h := sha256.New()
	h.Write([]byte(before))
	h.Write(raw)
	return hex.EncodeToString(h.Sum(nil))[:exportSum]
}

// plainJSON is JSON on one line that leaves <, > and & as they are.
func plainJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// exported is a record as a line has it. The folder of the session's own workspace is left out: it is where a store lies.
func exported(e persistence.Entry) (*exportRecord, error) {
	r := e.Record
	x := &exportRecord{
		Cursor: e.Cursor, Stream: e.Stream, Seq: r.GetSeq(), Epoch: r.GetEpoch(), ID: hex.EncodeToString(r.GetRecordId()), Type: r.GetType(),
		Schema: r.GetSchema(), AtMs: r.GetAtUnixMs(), Causation: r.GetCausationId(), Turn: r.GetTurnId(), Ignorable: r.GetIgnorable(),
	}
	body := r.GetBody()
	w := decoded(e.Stream, body)
	if w == nil {
		x.Body = body
		return x, nil
	}
	if s, ok := w.(*messages.SessionFact); ok {
		if a := s.GetWorkspaceAttached(); actors.IsHome(a) || a.GetSource() != "" {
			a.Path, a.ClonePath = "", ""
			var err error
			if body, err = proto.Marshal(w); err != nil {
				return nil, fmt.Errorf("encode record %d: %w", e.Cursor, err)
			}
		}
	}
	text, err := factJSON(w)
	if err != nil {
		return nil, fmt.Errorf("record %d: %w", e.Cursor, err)
	}
	if holds(text, wrapper(e.Stream), body) {
		x.Fact = text
	} else {
		x.Body = body // fields that this version does not know would be lost
	}
	return x, nil
}

// decoded is the fact in a body; nil when it cannot be told.
func decoded(stream string, body []byte) proto.Message {
	w := wrapper(stream)
	if w == nil || proto.Unmarshal(body, w) != nil {
		return nil
	}
	return w
}

// holds says whether the JSON of a fact is the whole fact: made of it again, it has the same bytes.
func holds(text []byte, again proto.Message, body []byte) bool {
	if protojson.Unmarshal(text, again) != nil {
		return false
	}
	b, err := proto.Marshal(again)
	return err == nil && bytes.Equal(b, body)
}

// wrapper is the empty fact of a stream's journal; nil for one that is not exported.
func wrapper(stream string) proto.Message {
	switch kind, _, _ := strings.Cut(stream, "/"); kind {
	case "ses":
		return &messages.SessionFact{}
	case "wrk":
		return &messages.WorkerFact{}
	case "cnv":
		return &messages.ConversationFact{}
	}
	return nil
}

// factJSON is protobuf's JSON, whose spaces are not always the same, without spaces.
func factJSON(m proto.Message) ([]byte, error) {
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode the fact: %w", err)
	}
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil {
		return nil, fmt.Errorf("encode the fact: %w", err)
	}
	return b.Bytes(), nil
}
