package messages

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// Prefixes of ids: what an id names can be read off it.
const (
	SessionPrefix  = "ses_"
	WorkerPrefix   = "wrk_"
	RunPrefix      = "run_"
	ApprovalPrefix = "apr_"
	ExecPrefix     = "exe_"
	JobPrefix      = "job_"
	TurnPrefix     = "trn_"
	InputPrefix    = "inp_"
	TimerPrefix    = "tmr_"
	ProjectPrefix  = "prj_"
	RulePrefix     = "rul_"
	// ConversationPrefix is that of conversations which several workers share.
	ConversationPrefix = "cnv_"
	// GenerationPrefix is followed by the place of the generation's first record: see GenerationID.
	GenerationPrefix = "gen_"
)

// NewID returns prefix and a UUIDv7 without dashes: unique, and ordered by time of making.
func NewID(prefix string) string {
	id, err := uuid.NewV7()
	if err != nil { // crypto/rand never fails on the supported systems; Must documents it
		id = uuid.New()
	}
	var b strings.Builder
	b.Grow(len(prefix) + 32)
	b.WriteString(prefix)
	const hex = "0123456789abcdef"
	for _, c := range id {
		b.WriteByte(hex[c>>4])
		b.WriteByte(hex[c&15])
	}
	return b.String()
}

// GenerationID names a generation by where it begins: the worker's journal, the epoch and the record there. So none has the id of
// another, wherever its conversation is carried on: epochs are counted by each store for itself, and a journal that lost
// its end writes other records in the same places.
func GenerationID(worker string, epoch, seq uint64) string {
	id := make([]byte, 0, 80)
	id = append(append(id, GenerationPrefix...), strings.TrimPrefix(worker, WorkerPrefix)...)
	id = strconv.AppendUint(append(id, '_'), epoch, 16)
	return string(strconv.AppendUint(append(id, '_'), seq, 10))
}

// ValidID says whether s is an id with the prefix: the prefix, then 1 to 64 letters, digits, `-` or `_`.
func ValidID(prefix, s string) bool {
	rest, ok := strings.CutPrefix(s, prefix)
	if !ok || rest == "" || len(rest) > 64 {
		return false
	}
	for _, c := range []byte(rest) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return true
}

// Streams of the journal.

// WorkerStream is the stream of a worker's conversation.
func WorkerStream(id string) string { return "wrk/" + id }

// SystemStream is the stream of the whole store.
const SystemStream = "sys"

// SessionStream is the stream of a session.
func SessionStream(id string) string { return "ses/" + id }

// RunStream is the stream of a pipeline run.
func RunStream(id string) string { return "run/" + id }

// ConversationStream is the stream of a shared conversation.
func ConversationStream(id string) string { return "cnv/" + id }

// RunOf is the id of the run that a session is made for: the one is known by the other.
func RunOf(session string) string { return RunPrefix + strings.TrimPrefix(session, SessionPrefix) }

// SessionOf is the session that was made for a run.
func SessionOf(run string) string { return SessionPrefix + strings.TrimPrefix(run, RunPrefix) }

// WorkspaceStream is the stream of a workspace, named by the hash of its canonical address.
func WorkspaceStream(hash string) string { return "wsp/" + hash }

// MadeIDs finds the ids that NewID has made in a text; three letters tell the kind.
func MadeIDs() *regexp.Regexp { return regexp.MustCompile(`\b([a-z]{3})_[0-9a-f]{32}\b`) }
