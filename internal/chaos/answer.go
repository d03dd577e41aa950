package chaos

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/messages"
)

// occasion is when a person answers an approval, relative to the life of the process that asks.
type occasion int

// The occasions. Those that kill are for mode Random alone: in mode Every each append is cut, also that of the question and that
// of the answer.
const (
	atOnce     occasion = iota
	meanwhile           // while other calls run
	asleep              // in the next life, before anybody has woken the session
	afterKill           // in the next life, whose turn has asked anew
	withKill            // the answer is under way when the process is killed
	thenKill            // the process is killed once the answer is acknowledged
	unanswered          // it expires; where nothing does, it is answered later
)

// reply is what a person will say to one approval.
type reply struct {
	decision messages.Decision_Value
	when     occasion
	pause    time.Duration
	edited   bool // with arguments of their own
	twice    bool // and again, with another word
}

// newReply draws it from the seed and the tag of the call alone.
func newReply(seed uint64, tag string, mode Mode) reply {
	h := fnv.New64a()
	_, _ = h.Write([]byte(tag))                     // into memory
	rng := rand.New(rand.NewPCG(seed+1, h.Sum64())) //nolint:gosec // a run must repeat, not be unpredictable
	r := reply{
		decision: []messages.Decision_Value{messages.Decision_APPROVED, messages.Decision_REJECTED, messages.Decision_CANCELLED}[pick(rng, 10, 4, 1)],
		when:     occasion(pick(rng, 5, 4, 4, 2, 2, 2, 1)),
		pause:    time.Duration(1+rng.IntN(12)) * time.Millisecond,
		twice:    rng.IntN(3) == 0,
	}
	r.edited = r.decision == messages.Decision_APPROVED && rng.IntN(6) == 0
	kills := r.when == afterKill || r.when == withKill || r.when == thenKill
	if kills && mode != Random || r.when == asleep && mode == Never {
		r.when = meanwhile
	}
	return r
}

// reversed says whether the approvals of one turn that wait together are answered from the newest to the oldest.
func reversed(seed uint64, turn int) bool { return (seed+uint64(turn))%2 == 1 } //nolint:gosec // a number from 1

// tagIn says which call an approval is about, by its arguments: the runner gives every call a tag of its own.
func tagIn(arguments string) string {
	var args struct {
		Name    string `json:"name"`
		Content string `json:"content"`
		Edits   []struct {
			New string `json:"new_string"`
		} `json:"edits"`
	}
	if err := json.Unmarshal([]byte(arguments), &args); err != nil {
		return ""
	}
	for _, e := range args.Edits {
		args.Content += e.New
	}
	if marks := marksIn(args.Content); args.Name == "" && len(marks) > 0 {
		return strings.TrimSuffix(strings.TrimPrefix(marks[0], "mark-"), ".")
	}
	return args.Name
}

// turnIn is the number of the turn that a tag belongs to, 0 when it is none of ours.
func turnIn(tag string) int {
	var n int
	_, _ = fmt.Sscanf(strings.TrimPrefix(tag, inputPrefix+"_"), "%d", &n) // 0
	return n
}

// editedArgs are arguments that a person has made of those of a test tool, "" for any other.
func editedArgs(tool, arguments string) string {
	if tool != toolLook && tool != toolPut && tool != toolPost && tool != toolCharge {
		return ""
	}
	return string(marshal(map[string]any{"name": tagIn(arguments) + "-edited", "workspace_id": guardedName}))
}

// aborts says whether a person may end the turn instead of approving one of its calls.
func (t *turn) aborts(seed uint64, mode Mode) bool {
	for _, s := range t.steps {
		for _, c := range s.calls {
			if newReply(seed, tagIn(string(c.Arguments)), mode).decision == messages.Decision_CANCELLED && c.guarded() {
				return true
			}
		}
	}
	return t.cancel
}

// guarded says whether a call goes where a person is asked, or nobody can be.
func (c *toolCall) guarded() bool {
	var args struct {
		Workspace string `json:"workspace_id"`
	}
	return json.Unmarshal(c.Arguments, &args) == nil && args.Workspace == guardedName
}
