package badger

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// A backup begins with the magic. Each frame is its kind, the length of its content, the content, and a crc32c
// over all three. The last one holds the sha-256 of everything before it; nothing follows it.
const (
	backupMagic  = "troupe backup\n"
	backupFormat = format // of the store, whose entries it holds; earlier ones are read, too
	frameHead    = 5
	maxFrame     = 32 << 20 // a part holds a value of at most pieceSize over partSize
)

// The kinds of frames.
const (
	frameHeader  = 'H'
	framePart    = 'P'
	frameTrailer = 'T'
)

type frameWriter struct {
	w   *bufio.Writer
	sum hash.Hash
}

func newFrameWriter(w io.Writer) *frameWriter {
	return &frameWriter{w: bufio.NewWriterSize(w, 256<<10), sum: sha256.New()}
}

func (f *frameWriter) begin(h *messages.BackupHeader) error {
	if err := f.put([]byte(backupMagic)); err != nil {
		return err
	}
	return f.frame(frameHeader, h)
}

func (f *frameWriter) frame(kind byte, m proto.Message) error {
	content, err := proto.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode a frame: %w", err)
	}
	b := make([]byte, 0, frameHead+len(content)+sumSize)
	b = append(b, kind)
	b = binary.BigEndian.AppendUint32(b, uint32(len(content)))
	b = append(b, content...)
	return f.put(binary.BigEndian.AppendUint32(b, sum(0, b)))
}

func (f *frameWriter) put(b []byte) error {
	_, _ = f.sum.Write(b) // into memory
	if _, err := f.w.Write(b); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// end writes the trailer, with the sum of everything before it.
func (f *frameWriter) end(t *messages.BackupTrailer) error {
	t.Mark.Sum = f.sum.Sum(nil)
	if err := f.frame(frameTrailer, t); err != nil {
		return err
	}
	if err := f.w.Flush(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// backupParts is what a reader of a backup does with it.
type backupParts struct {
	header func(*messages.BackupHeader) error
	part   func(*messages.BackupPart) error
}

// readBackup reads a whole backup and checks every frame, the counts, the sum and that nothing
// follows. Errors are ErrBackup and say at which byte.
func readBackup(r io.Reader, do backupParts) (*messages.BackupTrailer, error) {
	f := &frameReader{r: bufio.NewReaderSize(r, 256<<10), sum: sha256.New()}
	magic := make([]byte, len(backupMagic))
	if _, err := io.ReadFull(f.r, magic); err != nil || string(magic) != backupMagic {
		return nil, fmt.Errorf("it does not begin like a backup of troupe: %w", ErrBackup)
	}
	f.at = int64(len(magic))
	_, _ = f.sum.Write(magic) // into memory
	header := &messages.BackupHeader{}
	if err := f.expect(frameHeader, header); err != nil {
		return nil, err
	}
	if n := header.GetFormat(); n < 1 || n > backupFormat {
		return nil, fmt.Errorf("it has format %d, this troupe reads up to %d: %w", header.GetFormat(), backupFormat, ErrBackup)
	}
	if len(header.GetMark().GetStore()) != storeIDSize {
		return nil, fmt.Errorf("its header names no store: %w", ErrBackup)
	}
	if err := do.header(header); err != nil {
		return nil, err
	}
	return f.rest(header, do)
}

// frameReader counts and sums what it reads.
type frameReader struct {
	r   *bufio.Reader
	at  int64
	sum hash.Hash
}

func (f *frameReader) expect(kind byte, m proto.Message) error {
	got, content, err := f.next()
	switch {
	case err != nil:
		return err
	case got != kind:
		return fmt.Errorf("at byte %d: a frame of kind %q where %q was expected: %w", f.at, got, kind, ErrBackup)
	}
	return f.decode(content, m)
}

func (f *frameReader) decode(content []byte, m proto.Message) error {
	if err := proto.Unmarshal(content, m); err != nil {
		return fmt.Errorf("before byte %d: a frame does not decode: %w: %w", f.at, ErrBackup, err)
	}
	return nil
}

// next reads one frame and adds it to the sum, unless it is the trailer.
func (f *frameReader) next() (kind byte, content []byte, err error) {
	cut := func(err error) error {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("it is cut off in the frame at byte %d: %w", f.at, ErrBackup)
		}
		return fmt.Errorf("read at byte %d: %w", f.at, err)
	}
	var head [frameHead]byte
	if _, err := io.ReadFull(f.r, head[:]); err != nil {
		return 0, nil, cut(err)
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxFrame {
		return 0, nil, fmt.Errorf("the frame at byte %d is damaged: it claims %d bytes: %w", f.at, n, ErrBackup)
	}
	// Not made at once: a damaged length must not cost its memory.
	var rest bytes.Buffer
	if _, err := io.CopyN(&rest, f.r, int64(n)+sumSize); err != nil {
		return 0, nil, cut(err)
	}
	b := rest.Bytes()
	content = b[:n]
	if sum(sum(0, head[:]), content) != binary.BigEndian.Uint32(b[n:]) {
		return 0, nil, fmt.Errorf("the frame at byte %d does not match its checksum: %w", f.at, ErrBackup)
	}
	f.at += frameHead + int64(n) + sumSize
	if head[0] != frameTrailer {
		_, _ = f.sum.Write(head[:]) // into memory
		_, _ = f.sum.Write(b)
	}
	return head[0], content, nil
}

// rest reads the parts and the trailer.
func (f *frameReader) rest(header *messages.BackupHeader, do backupParts) (*messages.BackupTrailer, error) {
	var entries, keys uint64
	for {
		kind, content, err := f.next()
		if err != nil {
			return nil, err
		}
		switch kind {
		case framePart:
			part := &messages.BackupPart{}
			if err := f.decode(content, part); err != nil {
				return nil, err
			}
			entries += uint64(len(part.GetEntries()))
			keys += uint64(len(part.GetKeys()))
			if err := do.part(part); err != nil {
				return nil, err
			}
		case frameTrailer:
			t := &messages.BackupTrailer{}
			if err := f.decode(content, t); err != nil {
				return nil, err
			}
			switch {
			case !bytes.Equal(t.GetMark().GetSum(), f.sum.Sum(nil)), t.GetEntries() != entries, t.GetKeys() != keys,
				!bytes.Equal(t.GetMark().GetStore(), header.GetMark().GetStore()):
				return nil, fmt.Errorf("its end does not match what is before it: %w", ErrBackup)
			}
			if _, err := f.r.ReadByte(); !errors.Is(err, io.EOF) {
				return nil, fmt.Errorf("something follows its end at byte %d: %w", f.at, ErrBackup)
			}
			return t, nil
		default:
			return nil, fmt.Errorf("before byte %d: a frame of unknown kind %q: %w", f.at, kind, ErrBackup)
		}
	}
}
