package act

import (
	"math/rand/v2"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
)

// What is pushed comes out, once and in order, whatever the queue does with its memory meanwhile.
func TestAQueueKeepsOrderWhileItGrowsAndShrinks(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // the same every time
	for range 50 {
		var q fifo
		in, out := 0, 0
		for range 3000 {
			for n := r.IntN(40); n > 0 && r.IntN(2) == 0; n-- {
				q.push(in)
				in++
			}
			for n := r.IntN(40); n > 0 && q.len() > 0; n-- {
				if got := q.pop(); got != out {
					t.Fatalf("%v came out where %d went in", got, out)
				}
				out++
			}
			if q.len() != in-out {
				t.Fatalf("%d in the queue, not %d", q.len(), in-out)
			}
		}
		for q.len() > 0 {
			if got := q.pop(); got != out {
				t.Fatalf("%v came out where %d went in", got, out)
			}
			out++
		}
		if cap(q.items) > keptItems {
			t.Fatalf("an empty queue holds room for %d", cap(q.items))
		}
	}
}

// notes is an invoker that writes down what it is given, and panics where it is told to.
type notes struct {
	got    []any
	escape any
}

func (n *notes) InvokeSystemMessage(m any) { n.got = append(n.got, m) }

func (n *notes) InvokeUserMessage(m any) {
	if m == "panic" {
		panic(m)
	}
	n.got = append(n.got, m)
}

func (n *notes) EscalateFailure(reason, _ any) { n.escape = reason }

// atOnce runs what is scheduled when it is asked to.
type atOnce struct{ due []func() }

func (d *atOnce) Schedule(fn func()) { d.due = append(d.due, fn) }
func (d *atOnce) Throughput() int    { return 300 }

func (d *atOnce) run() {
	for len(d.due) > 0 {
		fn := d.due[0]
		d.due = d.due[1:]
		fn()
	}
}

func TestAMailboxHandlesSystemMessagesFirstAndRestsWhileSuspended(t *testing.T) {
	n, d := &notes{}, &atOnce{}
	m := Mailbox(nil)()
	m.PostUserMessage("before the start")
	m.PostSystemMessage("stop")
	m.RegisterHandlers(n, d)
	m.PostSystemMessage(&actor.Started{})
	if len(d.due) != 0 {
		t.Fatal("it is scheduled before its start")
	}
	m.Start()
	d.run()
	m.PostSystemMessage(&actor.SuspendMailbox{})
	m.PostUserMessage("one")
	d.run()
	m.PostUserMessage("two")
	if m.UserMessageCount() != 2 || len(d.due) != 0 {
		t.Fatalf("%d messages wait, %d runs are due", m.UserMessageCount(), len(d.due))
	}
	m.PostSystemMessage("system")
	d.run()
	m.PostSystemMessage(&actor.ResumeMailbox{})
	m.PostUserMessage("panic")
	m.PostUserMessage("three")
	if len(d.due) != 1 {
		t.Fatalf("%d runs are due, not one", len(d.due))
	}
	d.run()
	want := []any{"stop", "before the start", "system", "one", "two", "three"}
	if _, first := n.got[0].(*actor.Started); !first || len(n.got) != len(want)+1 {
		t.Fatalf("handled: %v", n.got)
	}
	for i, w := range want {
		if n.got[i+1] != w {
			t.Fatalf("handled: %v, not %v", n.got, want)
		}
	}
	if n.escape != "panic" {
		t.Fatalf("escalated: %v", n.escape)
	}
}
