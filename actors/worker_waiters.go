package actors

import (
	"slices"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/actors/act"
)

// waiters are those who wait for the turns of inputs, in the order in which they came. As a rule it is one.
type waiters []waiter

type waiter struct {
	input string
	pid   *actor.PID
}

// add notes who waits for the turn of an input. Those who have stopped waiting are forgotten before the list grows (act.Await).
func (x *waiters) add(sys *actor.ActorSystem, input string, who *actor.PID) {
	if len(*x) == cap(*x) {
		*x = slices.DeleteFunc(*x, func(one waiter) bool { return !act.Waits(sys, one.pid) })
	}
	*x = append(*x, waiter{input, who})
}

// answer calls fn for each who waits for the turn of an input: nobody waits for it any more.
func (x *waiters) answer(input string, fn func(*actor.PID)) {
	all := *x
	kept := 0
	for _, one := range all {
		if one.input == input {
			fn(one.pid)
			continue
		}
		all[kept] = one
		kept++
	}
	clear(all[kept:])
	*x = all[:kept]
}
