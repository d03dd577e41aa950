package pipeline

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/messages"
)

// A group is a step whose agents share a conversation: each turn of a member is an item, and the next one begins when it is over. A
// member whose turn fails is asked no more, and the others go on.

// Bounds of groups.
const (
	maxMembers = 64
	manyRounds = 10  // at most, when only until is said
	maxTalk    = 160 // bytes of a path that names a conversation as it is
)

// group checks what a group says.
func (c *checker) group(st *Step) {
	no := func(is bool, what, fix string) {
		if is {
			c.fail(st.at, fmt.Sprintf("step %q: %s", st.ID, what), fix)
		}
	}
	if st.Kind != GroupStep {
		no(st.Rounds > 0, "rounds is for groups", "to go round with one agent, use repeat")
		no(st.Until != nil, "until is for groups", "to go round with one agent, write repeat: {until: ...}")
		return
	}
	names := slices.Clone(st.Group)
	slices.Sort(names)
	no(len(st.Group) < 2 || len(st.Group) > maxMembers, fmt.Sprintf("a group of %d", len(st.Group)), fmt.Sprintf("name 2 to %d agents, for example: group: [pro, con]", maxMembers))
	no(len(slices.Compact(names)) < len(st.Group), "group names an agent twice", "give each member an agent of its own below agents:")
	no(st.ForEach != nil, "group and foreach exclude each other", "run a pipeline of its own for each item")
	no(st.Repeat != nil, "group and repeat exclude each other", "write rounds: and until: in the step itself")
	no(st.Schema != nil, "output.schema is not for groups", "have a step that needs this one sum up")
	no(st.Conversation != nil, "a group begins its own conversation", "say in its prompt what was before")
	no(st.OnError == Continue, "a member that fails does not fail its group", "leave on_error out; quorum: says how many have to be left")
	no(st.Quorum > len(st.Group), fmt.Sprintf("a quorum of %d among %d members", st.Quorum, len(st.Group)), "")
	no(st.Approve != nil && len(st.Approve.Before) == 0, "approve would ask before the first turn alone", "ask in a step of its own that this one needs, or approve tools with before:")
	no(st.Rounds*len(st.Group) > maxItems, fmt.Sprintf("%d turns, and a step has at most %d", st.Rounds*len(st.Group), maxItems), "")
}

// most is how many rounds a group has at most.
func (s *Step) most() int {
	switch {
	case s.Rounds > 0:
		return s.Rounds
	case s.Until != nil:
		return manyRounds
	}
	return 1
}

// speaker is who speaks in a turn, and in which round.
func (it *ItemState) speaker() (member string, round int) {
	v, _ := it.Value.(map[string]any)
	member, _ = v["member"].(string)
	round, _ = v["round"].(int)
	return member, round
}

// present are the members whose turns have not failed since the run was resumed last.
func (ss *StepState) present() (in []string) {
	for _, name := range ss.Step.Group {
		if !slices.ContainsFunc(ss.Items[min(ss.again, len(ss.Items)):], func(it *ItemState) bool {
			member, _ := it.speaker()
			return member == name && (it.Status == Failed || it.Status == Cancelled)
		}) {
			in = append(in, name)
		}
	}
	return in
}

// left is how many members a group needs.
func (s *Step) left() int { return max(s.Quorum, 1) }

// lost says whether a turn came to nothing.
func (it *ItemState) lost() bool { return it.Status == Failed || it.Status == Cancelled }

// newest is the newest turn of a member; nil: it had none.
func (ss *StepState) newest(member string) *ItemState {
	for i := len(ss.Items) - 1; i >= 0; i-- {
		if name, _ := ss.Items[i].speaker(); name == member {
			return ss.Items[i]
		}
	}
	return nil
}

// following is who speaks next; false: nobody. After its run was resumed those speak first whose newest turn came to nothing before, each once more in its round.
func (ss *StepState) following() (member string, round int, ok bool) {
	in, all := ss.present(), ss.Step.Group
	if len(in) < ss.Step.left() {
		return "", 0, false
	}
	at := -1 // the place behind which the next one stands: what is said once more stands where it stood
	round = 1
	var again *ItemState
	for _, it := range ss.Items {
		name, in := it.speaker()
		if place := slices.Index(all, name); in > round || in == round && place > at {
			at, round = place, in
		}
		if again == nil && it.lost() && it.Index < ss.again && it == ss.newest(name) && slices.Contains(all, name) {
			again = it
		}
	}
	if again != nil {
		member, round = again.speaker()
		return member, round, true
	}
	for at++; ; at++ {
		if at == len(all) {
			at, round = 0, round+1
		}
		if round > ss.Step.most() {
			return "", 0, false
		}
		if slices.Contains(in, all[at]) {
			return all[at], round, true
		}
	}
}

// word begins the next turn of a group. It is true when there are to be no more.
func (d *decider) word(ss *StepState) bool {
	n := len(ss.Items)
	if n > 0 && ss.Step.Until != nil && ss.Items[n-1].Status == Succeeded {
		env := d.env(ss, ss.Items[n-1])
		env["output"] = ss.Items[n-1].Output
		v, err := ss.Step.Until.eval(env)
		if err != nil {
			d.fail(ss, "until: "+err.Error())
			return true
		}
		if v == true {
			return true
		}
	}
	member, round, ok := ss.following()
	if !ok {
		return true
	}
	if !d.free(ss) {
		return false
	}
	if err := d.counts(1); err != nil {
		d.fail(ss, err.Error())
		return true
	}
	item := &ItemState{Key: member + " " + strconv.Itoa(round), Index: n, step: ss, Value: map[string]any{"member": member, "round": round}}
	if ss.Items != nil && slices.ContainsFunc(ss.Items, func(it *ItemState) bool { return it.Key == item.Key }) { // it was tried before the run was resumed
		item.Key += "#" + strconv.Itoa(n)
	}
	f, err := d.begin(ss, item, n, 1)
	if err != nil {
		d.fail(ss, err.Error())
		return true
	}
	f.Item = &messages.RunItem{Key: item.Key, ValueJson: encodeJSON(item.Value)}
	d.take(ss, f)
	return false
}

// speaks says whose turn an item is, and where: a member has one worker for all of its turns.
func (d *decider) speaks(f *messages.StepItemStarted, it *ItemState) {
	f.Agent, _ = it.speaker()
	f.Conversation = talk(it.step.name())
	f.ExecId = d.id(messages.ExecPrefix, it.step.name()+"\x00"+f.GetAgent(), 0, 0)
}

// talk is the name of a group's conversation: the path of its step, which the keys of items may make longer than a name is, or give what
// none may hold.
func talk(path string) string {
	plain := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '_'
	}, strings.ToValidUTF8(path, "_"))
	if plain == path && len(path) <= maxTalk && !strings.HasPrefix(path, messages.ConversationPrefix) {
		return path
	}
	sum := sha256.Sum256([]byte(path))
	for len(plain) > maxTalk {
		_, n := utf8.DecodeLastRuneInString(plain)
		plain = plain[:len(plain)-n]
	}
	return "step " + plain + "#" + hex.EncodeToString(sum[:8])
}

// grouped is the end of a group. why is what failed first. Those are left whose newest turn did not come to nothing, also of those who were not asked again.
func (ss *StepState) grouped(why string) (status, problem string) {
	in := 0
	for _, name := range ss.Step.Group {
		if it := ss.newest(name); it == nil || !it.lost() {
			in++
		}
	}
	if in < ss.Step.left() {
		return Failed, fmt.Sprintf("%d of %d members are left, and the quorum is %d; %s", in, len(ss.Step.Group), ss.Step.left(), why)
	}
	return Succeeded, ""
}
