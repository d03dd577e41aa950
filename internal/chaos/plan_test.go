package chaos

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/troupe-dev/troupe/messages"
)

// TestTheMixHasEverything draws what `make chaos-ci` draws, and looks for all that docs/chaos.md promises.
func TestTheMixHasEverything(t *testing.T) {
	const turns = 200
	has := make(map[string]int)
	for n := 1; n <= turns; n++ {
		tn := newTurn(1, n, Random)
		if !reflect.DeepEqual(tn, newTurn(1, n, Random)) {
			t.Fatalf("turn %d is not the same again", n)
		}
		tn = tn.inLane(n % 4)
		for name, is := range map[string]bool{
			"queued": tn.queued, "cancelled": tn.cancel, "called by a program": tn.call, "timer": tn.timer == setTimer, "timer taken back": tn.timer == setAndCancelTimer,
			"called by a program that is asked": tn.call && tn.n%2 == 0, "ended instead of approved": !tn.cancel && tn.aborts(1, Random),
			"answered in reverse": reversed(1, n), "answered in order": !reversed(1, n),
		} {
			if is {
				has[name]++
			}
		}
		for _, s := range tn.steps {
			has[fmt.Sprintf("%d calls at once", len(s.calls))]++
			for _, f := range s.faults {
				has["fault "+string(f)]++
			}
			asked := 0
			for _, c := range s.calls {
				countCall(has, &c, &asked)
			}
			if asked > 1 {
				has["several pending"]++
			}
		}
	}
	for _, name := range promised() {
		if has[name] == 0 {
			t.Errorf("%d turns have no %q", turns, name)
		}
	}
	t.Log(has)
}

func countCall(has map[string]int, c *toolCall, asked *int) {
	where := "trusted "
	if c.guarded() {
		where = "asked "
		*asked++
		r := newReply(1, tagIn(string(c.Arguments)), Random)
		has[r.decision.String()]++
		has[fmt.Sprint("occasion ", r.when)]++
		if r.edited && editedArgs(c.Name, string(c.Arguments)) != "" {
			has["edited"]++
		}
		if r.twice {
			has["answered twice"]++
		}
	}
	has[where+c.Name]++
}

// promised is what docs/chaos.md says.
func promised() []string {
	out := []string{
		"queued", "cancelled", "called by a program", "called by a program that is asked", "timer", "timer taken back", "ended instead of approved",
		"answered in reverse", "answered in order", "several pending", "edited", "answered twice", "trusted nowhere",
	}
	for n := 1; n <= 8; n++ {
		out = append(out, fmt.Sprintf("%d calls at once", n))
	}
	for _, f := range []Fault{RateLimit, Overload, Cut, Drop, KillHere, Gone} {
		out = append(out, "fault "+string(f))
	}
	for _, tool := range []string{toolLook, toolPut, toolPost, toolCharge, "write_file", "edit_file"} {
		out = append(out, "trusted "+tool, "asked "+tool)
	}
	for when := atOnce; when <= unanswered; when++ {
		out = append(out, fmt.Sprint("occasion ", when))
	}
	for _, d := range []messages.Decision_Value{messages.Decision_APPROVED, messages.Decision_REJECTED, messages.Decision_CANCELLED} {
		out = append(out, d.String())
	}
	return out
}
