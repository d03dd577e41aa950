package actors

import (
	"cmp"
	"context"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
)

const (
	// treeWait bounds the look at the live tree: who does not answer by then is shown as busy.
	treeWait = 2 * time.Second
	// treeAsks is how many actors are asked at the same time.
	treeAsks = 32
)

// describe answers with the live tree: as the root knows it, or as all of its actors say themselves.
func (s *Supervisor) describe(c actor.Context, m *messages.DescribeTree) {
	tree := s.tree()
	if !m.GetDeep() || c.Sender() == nil {
		c.Respond(&messages.Tree{Root: tree})
		return
	}
	svc, sys, asker := s.svc, c.ActorSystem(), c.Sender()
	svc.spawn(sys, asker, func(p *act.Panic) any { return messages.Fail(messages.CodeInternal, p.Error(), "") }, func() any {
		ctx, cancel := context.WithTimeout(context.Background(), treeWait)
		defer cancel()
		lookInto(ctx, sys, tree.GetChildren())
		return &messages.Tree{Root: tree}
	})
}

// lookInto asks the children of the root about themselves, several at a time.
func lookInto(ctx context.Context, sys *actor.ActorSystem, all []*messages.ActorView) {
	var asks sync.WaitGroup
	room := make(chan struct{}, treeAsks)
	for _, v := range all {
		if v.GetState() != running || question(v.GetKind()) == nil {
			continue
		}
		room <- struct{}{}
		asks.Go(func() {
			defer func() { <-room }()
			if p := act.Guard(func() { look(ctx, sys, v) }); p != nil {
				v.State, v.LastError = "unknown", p.Error()
			}
		})
	}
	asks.Wait()
}

// look completes the view of one child of the root.
func look(ctx context.Context, sys *actor.ActorSystem, v *messages.ActorView) {
	reply, err := act.Ask[proto.Message](ctx, sys, sys.NewLocalPID(root+"/"+v.GetId()), question(v.GetKind()))
	if err != nil {
		v.State = "busy"
		return
	}
	switch x := reply.(type) {
	case *messages.ActorView:
		v.State, v.Pending, v.Children, v.Waiting = x.GetState(), v.GetPending()+x.GetPending(), x.GetChildren(), x.GetWaiting()
	case *messages.WorkspaceView:
		v.Pending = x.GetWaiting()
		if len(x.GetHolders()) > 0 {
			v.State = "held"
		}
	}
}

func question(kind string) proto.Message {
	switch kind {
	case "workspace":
		return &messages.DescribeWorkspace{}
	case "session", "limiter":
		return &messages.DescribeTree{Deep: true}
	}
	return nil // it has nothing to say
}

// subtree is a session with its workers and their executors.
func (s *Session) subtree(c actor.Context) {
	keeps := s.stash.Len() + s.builds.Len()
	for _, w := range s.workers {
		keeps += w.queue.Len()
	}
	talks := s.talks()
	s.gather(c, func(views []*messages.WorkerView) any {
		sum := &messages.SessionView{Workers: views}
		SumUp(sum)
		v := &messages.ActorView{Kind: "session", Id: s.id, State: sum.GetState(), Pending: int32(keeps)}
		for _, w := range views {
			v.Children = append(v.Children, workerNode(w))
		}
		v.Children = append(v.Children, talks...)
		return v
	})
}

func workerNode(w *messages.WorkerView) *messages.ActorView {
	v := &messages.ActorView{
		Kind: "worker", Id: w.GetId(), State: w.GetState(), Restarts: w.GetRestarts(), Pending: w.GetPending() + w.GetStaged(), LastError: w.GetLastError(),
		Parent: w.GetParent(), Agent: w.GetAgent(), Background: w.GetBackground(), MemoryBytes: w.GetMemoryBytes(),
	}
	if w.GetExecutor() != "" {
		state := running
		if w.GetCalls() == 0 {
			state = stateInactive
		}
		v.Children = []*messages.ActorView{{Kind: "toolexecutor", Id: w.GetExecutor(), State: state, Pending: w.GetCalls()}}
	}
	return v
}

// tree is the live tree as far as the root sees it: its children, with their restarts.
func (s *Supervisor) tree() *messages.ActorView {
	v := &messages.ActorView{Kind: "supervisor", Id: root, State: running, MemoryBytes: liveBytes(), Room: int32(max(s.svc.Limits.Sessions, 0))}
	for _, k := range s.kids {
		kind, _, _ := strings.Cut(k.name, "-")
		if strings.HasPrefix(k.name, messages.SessionPrefix) {
			kind = "session"
		}
		v.Children = append(v.Children, &messages.ActorView{
			Kind: kind, Id: k.name, State: k.state(), Restarts: int32(k.restarts), LastError: k.lastError, Pending: int32(k.queue.Len()),
		})
	}
	slices.SortFunc(v.GetChildren(), func(a, b *messages.ActorView) int {
		return cmp.Or(cmp.Compare(a.GetKind(), b.GetKind()), cmp.Compare(a.GetId(), b.GetId()))
	})
	return v
}

// liveBytes is what the process holds on its heap and its stacks, garbage among it.
func liveBytes() int64 {
	all := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(all)
	sum := uint64(0)
	for _, one := range all {
		if one.Value.Kind() == metrics.KindUint64 {
			sum += one.Value.Uint64()
		}
	}
	return int64(sum) //nolint:gosec // no process holds 8 EiB
}

// running is the state of an actor that works as it should.
const running = "running"

func (k *kid) state() string {
	switch {
	case k.gaveUp != "":
		return "given up"
	case k.leaving != nil, k.ended:
		return "leaving"
	case k.pid == nil:
		return "restarting"
	}
	return running
}
