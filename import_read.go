package troupe

import (
	"bufio"
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
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// importReader reads an exported file line by line, and refuses it at the first line that is not as it was written.
type importReader struct {
	in      *bufio.Reader
	all     hash.Hash // over every byte up to the line at hand
	n       int       // of the line at hand, from 1
	last    string    // sum of the line before
	header  exportHeader
	cursor  uint64
	streams map[string]bool
	ended   bool // the trailer was read
}

// wrongLine says which line of a file is wrong, and what is wrong with it.
type wrongLine struct {
	n    int
	what string
}

func (e *wrongLine) Error() string { return fmt.Sprintf("line %d: %s", e.n, e.what) }

func (r *importReader) wrong(format string, args ...any) error {
	return &wrongLine{r.n, fmt.Sprintf(format, args...)}
}

// newImportReader reads the header.
func newImportReader(in io.Reader) (*importReader, error) {
	r := &importReader{in: bufio.NewReaderSize(in, 64<<10), all: sha256.New(), streams: make(map[string]bool)}
	line, err := r.line()
	if err != nil {
		return nil, err
	}
	if line.Header == nil {
		return nil, r.wrong("it is not the header of an exported session")
	}
	if err := strict(line.Header, &r.header); err != nil {
		return nil, r.wrong("the header cannot be read: %v", err)
	}
	switch {
	case r.header.Format != exportFormat:
		return nil, r.wrong("the file is of format %q, not %q", cutText(r.header.Format, 40), exportFormat)
	case r.header.Version != exportVersion:
		return nil, r.wrong("the file is of version %d, and only %d is known", r.header.Version, exportVersion)
	case !messages.ValidID(messages.SessionPrefix, r.header.Session):
		return nil, r.wrong("%q is no session id", cutText(r.header.Session, 80))
	}
	r.all.Write(line.raw)
	return r, r.summed(line.Header, line.Sum)
}

// importLine is a line before it is known what it holds.
type importLine struct {
	Header  json.RawMessage `json:"header"`
	Record  json.RawMessage `json:"record"`
	Trailer json.RawMessage `json:"trailer"`
	Sum     string          `json:"sum"`

	raw []byte // the whole line, with its end
}

// line reads the next line. The end of the file is an error: before it there must have been a trailer.
func (r *importReader) line() (*importLine, error) {
	r.n++
	raw, err := r.bytes()
	if err != nil {
		return nil, err
	}
	l := &importLine{raw: raw}
	if !utf8.Valid(raw) {
		return nil, r.wrong("it is not UTF-8")
	}
	if err := strict(raw, l); err != nil {
		return nil, r.wrong("it cannot be read: %v", err)
	}
	kinds := 0
	for _, k := range []json.RawMessage{l.Header, l.Record, l.Trailer} {
		if len(k) > 0 {
			kinds++
		}
	}
	if kinds != 1 {
		return nil, r.wrong("it is not one of header, record and trailer")
	}
	return l, nil
}

// bytes reads up to the end of the line, and no more than a line may have.
func (r *importReader) bytes() ([]byte, error) {
	var raw []byte
	for {
		piece, err := r.in.ReadSlice('\n')
		if len(raw)+len(piece) > maxExportLine+1 {
			return nil, r.wrong("it is longer than %d bytes", maxExportLine)
		}
		raw = append(raw, piece...)
		switch {
		case err == nil:
			return raw, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(raw) == 0:
			return nil, r.wrong("the file ends here, before its trailer: it is not whole")
		case errors.Is(err, io.EOF):
			return raw, nil
		default:
			return nil, fmt.Errorf("read the file: %w", err)
		}
	}
}

// strict decodes one JSON value with no field that is not known.
func strict(raw []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			return errors.New("it breaks off")
		}
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more behind its end")
	}
	return nil
}

// summed checks a line's sum, which chains it to the one before.
func (r *importReader) summed(value []byte, sum string) error {
	r.last = lineSum(r.last, value)
	if sum != r.last {
		return r.wrong("it is not as it was written: its sum is %q where %q belongs", cutText(sum, 2*exportSum), r.last)
	}
	return nil
}

// next returns the next record, nil behind the last one: the file is whole then.
func (r *importReader) next() (*persistence.Entry, error) {
	if r.ended {
		return nil, nil //nolint:nilnil // there is no record and nothing is wrong
	}
	before := r.all.Sum(nil)
	l, err := r.lineAfter()
	if err != nil {
		return nil, err
	}
	switch {
	case l.Trailer != nil:
		return nil, r.trailer(l, before)
	case l.Record == nil:
		return nil, r.wrong("a second header")
	}
	var x exportRecord
	if err := strict(l.Record, &x); err != nil {
		return nil, r.wrong("the record cannot be read: %v", err)
	}
	if x.Cursor != r.cursor+1 {
		return nil, r.wrong("record %d stands where record %d belongs", x.Cursor, r.cursor+1)
	}
	if err := r.summed(l.Record, l.Sum); err != nil {
		return nil, err
	}
	r.cursor = x.Cursor
	r.streams[x.Stream] = true
	return r.entry(&x)
}

// lineAfter reads a line behind the header; what stood before it is in r.all then.
func (r *importReader) lineAfter() (*importLine, error) {
	l, err := r.line()
	if err != nil {
		return nil, err
	}
	r.all.Write(l.raw)
	return l, nil
}

// entry makes a record of its line.
func (r *importReader) entry(x *exportRecord) (*persistence.Entry, error) {
	id, err := hex.DecodeString(x.ID)
	if err != nil || len(id) != 16 && len(id) != 0 {
		return nil, r.wrong("the record's id is %q", cutText(x.ID, 40))
	}
	w := wrapper(x.Stream)
	switch {
	case w == nil || strings.Count(x.Stream, "/") != 1:
		return nil, r.wrong("stream %q cannot be imported", cutText(x.Stream, 80))
	case (len(x.Fact) == 0) == (len(x.Body) == 0):
		return nil, r.wrong("the record has not one of fact and body")
	}
	body := x.Body
	if len(x.Fact) > 0 {
		if err := protojson.Unmarshal(x.Fact, w); err != nil {
			return nil, r.wrong("the fact cannot be read: %s", plainSpace(err))
		}
		if body, err = proto.Marshal(w); err != nil {
			return nil, r.wrong("the fact cannot be encoded: %v", err)
		}
	}
	return &persistence.Entry{Stream: x.Stream, Session: r.header.Session, Cursor: x.Cursor, Record: &messages.Record{
		Seq: x.Seq, Epoch: x.Epoch, RecordId: id, Type: x.Type, Schema: x.Schema, AtUnixMs: x.AtMs, CausationId: x.Causation, TurnId: x.Turn,
		Body: body, Ignorable: x.Ignorable,
	}}, nil
}

// trailer checks the end of the file: what it counts, the sum over all before, and that nothing follows.
func (r *importReader) trailer(l *importLine, before []byte) error {
	var x exportTrailer
	if err := strict(l.Trailer, &x); err != nil {
		return r.wrong("the trailer cannot be read: %v", err)
	}
	switch {
	case x.Records != r.cursor:
		return r.wrong("the trailer counts %d records, and %d stand before it", x.Records, r.cursor)
	case x.Streams != len(r.streams):
		return r.wrong("the trailer counts %d streams, and %d stand before it", x.Streams, len(r.streams))
	}
	if err := r.summed(l.Trailer, l.Sum); err != nil {
		return err
	}
	if x.SHA256 != hex.EncodeToString(before) {
		return r.wrong("the file is not as it was written: its sha-256 is %x, the trailer says %q", before, cutText(x.SHA256, 64))
	}
	if _, err := r.in.ReadByte(); !errors.Is(err, io.EOF) {
		r.n++
		return r.wrong("there is more behind the trailer")
	}
	r.ended = true
	return nil
}

// plainSpace is protobuf's error, whose spaces are not always the same.
func plainSpace(err error) string {
	return strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "proto:")), " ")
}

func cutText(s string, n int) string {
	if len(s) > n {
		return strings.ToValidUTF8(s[:n], "") + "…"
	}
	return s
}

// fileSource gives out the records of an exported file, each time from its beginning, with every check.
func fileSource(f io.ReadSeeker) func(context.Context, func(persistence.Entry) error) error {
	return func(ctx context.Context, fn func(persistence.Entry) error) error {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("read the file: %w", err)
		}
		r, err := newImportReader(f)
		if err != nil {
			return err
		}
		for {
			if err := ctx.Err(); err != nil {
				return err
			}
			e, err := r.next()
			if err != nil || e == nil {
				return err
			}
			if err := fn(*e); err != nil {
				return err
			}
		}
	}
}
