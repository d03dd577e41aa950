package badger

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// The records of one append come from one activation at one moment, and nearly always belong to one turn: a commit says that once. It is encoded
// by hand, field by field, since a record without what is said elsewhere would be a message of its own.

// recordFrame is the most bytes that a record takes besides what it takes alone, and a commit's common fields besides those of its first record.
const recordFrame = 16

// recordIDSize is the length of a record's id, in bytes.
const recordIDSize = 16

// common is what all records of an append have alike. What is empty is in the records, or nowhere.
type common struct {
	of     bool // there are several records, and their seqs are left out
	epoch  uint64
	id     []byte // the first record's; the others follow from it
	schema uint32
	at     int64
	turn   string
}

func commonOf(records []*messages.Record) common {
	if len(records) < 2 {
		return common{}
	}
	r := records[0]
	c := common{of: true, epoch: r.GetEpoch(), id: r.GetRecordId(), schema: r.GetSchema(), at: r.GetAtUnixMs(), turn: r.GetTurnId()}
	if len(c.id) != recordIDSize {
		c.id = nil
	}
	for i, r := range records[1:] {
		if r.GetEpoch() != c.epoch {
			c.epoch = 0
		}
		if r.GetSchema() != c.schema {
			c.schema = 0
		}
		if r.GetAtUnixMs() != c.at {
			c.at = 0
		}
		if r.GetTurnId() != c.turn {
			c.turn = ""
		}
		var id [recordIDSize]byte
		if c.id != nil {
			persistence.FollowingID(id[:], c.id, i+1)
		}
		if !bytes.Equal(r.GetRecordId(), id[:]) {
			c.id = nil
		}
	}
	return c
}

// appendRecords encodes the records of a commit.
func appendRecords(b []byte, records []*messages.Record) []byte {
	c := commonOf(records)
	var short [256]byte
	if c.of {
		head := appendHead(short[:0], &messages.Record{Epoch: c.epoch, RecordId: c.id, Schema: c.schema, AtUnixMs: c.at, TurnId: c.turn}, &common{})
		b = protowire.AppendBytes(protowire.AppendTag(b, 4, protowire.BytesType), head)
	}
	for _, r := range records {
		head := appendHead(short[:0], r, &c)
		size := len(head)
		if len(r.GetBody()) > 0 {
			size += 1 + protowire.SizeBytes(len(r.GetBody()))
		}
		b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.BytesType), uint64(size))
		b = appendBytes(append(b, head...), 9, r.GetBody())
	}
	return b
}

// appendHead encodes what a record has besides its body and what all have.
func appendHead(b []byte, r *messages.Record, c *common) []byte {
	if !c.of {
		b = appendNumber(b, 1, r.GetSeq())
	}
	if r.GetEpoch() != c.epoch {
		b = appendNumber(b, 2, r.GetEpoch())
	}
	if c.id == nil {
		b = appendBytes(b, 3, r.GetRecordId())
	}
	b = appendNumber(b, 4, uint64(r.GetType()))
	if r.GetSchema() != c.schema {
		b = appendNumber(b, 5, uint64(r.GetSchema()))
	}
	if r.GetAtUnixMs() != c.at {
		b = appendNumber(b, 6, uint64(r.GetAtUnixMs()))
	}
	b = appendBytes(b, 7, r.GetCausationId())
	if r.GetTurnId() != c.turn {
		b = appendBytes(b, 8, r.GetTurnId())
	}
	b = appendBytes(b, 10, r.GetBodyBlob())
	if r.GetIgnorable() {
		b = appendNumber(b, 11, 1)
	}
	return b
}

func appendNumber(b []byte, field protowire.Number, n uint64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), n)
}

func appendBytes[B string | []byte](b []byte, field protowire.Number, v B) []byte {
	if len(v) == 0 {
		return b
	}
	b = protowire.AppendVarint(protowire.AppendTag(b, field, protowire.BytesType), uint64(len(v)))
	return append(b, v...)
}

// complete gives the records of a commit what they have in common, and their seqs. In one of before they have it themselves.
func complete(c *messages.Commit, first uint64) {
	alike := c.GetCommon()
	if alike == nil {
		return
	}
	var ids []byte
	if len(alike.GetRecordId()) == recordIDSize {
		ids = make([]byte, recordIDSize*len(c.GetRecords()))
	}
	for i, r := range c.GetRecords() {
		r.Seq = first + uint64(i)
		if ids != nil {
			r.RecordId = ids[i*recordIDSize : (i+1)*recordIDSize : (i+1)*recordIDSize]
			persistence.FollowingID(r.RecordId, alike.GetRecordId(), i)
		}
		if r.Epoch == 0 {
			r.Epoch = alike.GetEpoch()
		}
		if r.Schema == 0 {
			r.Schema = alike.GetSchema()
		}
		if r.AtUnixMs == 0 {
			r.AtUnixMs = alike.GetAtUnixMs()
		}
		if r.TurnId == "" {
			r.TurnId = alike.GetTurnId()
		}
	}
	c.Common = nil
}
