package chaos

import (
	"fmt"
	"time"

	"github.com/troupe-dev/troupe"
)

// Lanes differ. In odd ones approvals expire, and a turn that waits for one gives its folders back at once. In every third, from the first, another model stands in
// for one that does not answer; in every third, from the second, one session less than there are has room in memory, and who watches looks away now and then.

const expiry = 2 * time.Second

func expires(lane int) bool { return lane%2 == 1 }

func standsIn(lane int) bool { return lane%3 == 0 }

func narrow(lane int) bool { return lane%3 == 1 }

// roomIn is for how many of its sessions a lane has room; 0: for all of them.
func roomIn(lane, sessions int) int {
	if narrow(lane) {
		return max(1, sessions-1)
	}
	return 0
}

// Names of models. The second stands in for the first.
const (
	ownModel   = "chaos"
	otherModel = "chaos-other"
)

// models are those of a lane. They are one service, which is told who is asked; for permits they are two.
type models struct{ service troupe.Model }

// Resolve knows the names of both.
func (m models) Resolve(name string) (*troupe.ResolvedModel, error) {
	if name != ownModel && name != otherModel {
		return nil, fmt.Errorf("a run has no model %q", name)
	}
	return &troupe.ResolvedModel{Model: m.service, Provider: name, Name: name}, nil
}

// Providers are the names of both.
func (m models) Providers() []string { return []string{ownModel, otherModel} }

// agents are those of a lane; nil: the built-in one.
func agents(lane int) []troupe.Agent {
	if !standsIn(lane) {
		return nil
	}
	return []troupe.Agent{{Name: "default", Fallback: []string{otherModel}}}
}

// inLane is a turn as it is in a lane: where another model stands in, every second of the refusals that pass is one for good.
func (t turn) inLane(lane int) turn {
	if !standsIn(lane) {
		return t
	}
	steps := t.steps
	t.steps = nil
	for i, s := range steps {
		for j, f := range s.faults {
			if (f == Overload || f == RateLimit) && (t.n+i)%2 == 0 {
				s.faults = append([]Fault(nil), s.faults...)
				s.faults[j] = Gone
			}
		}
		t.steps = append(t.steps, s)
	}
	return t
}
