package gateway_test

import (
	"context"
	"iter"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
)

// owning is a backend that takes owners of workspaces.
type owning struct {
	*backend
	connect func(ctx context.Context, m *messages.ConnectOwner) error // nil: all are taken
	owners  chan gateway.WorkspaceOwner                               // that were taken
	left    chan bool                                                 // for good or not
}

func (o *owning) ConnectOwner(ctx context.Context, m *messages.ConnectOwner, owner gateway.WorkspaceOwner) (uint64, func(bool), error) {
	if o.connect != nil {
		if err := o.connect(ctx, m); err != nil {
			return 0, nil, err
		}
	}
	o.owners <- owner
	return 7, func(forGood bool) { o.left <- forGood }, nil
}

// takesOwners has sessions without workspaces; what is attached is granted as it was asked for.
func takesOwners() *owning {
	return &owning{owners: make(chan gateway.WorkspaceOwner, 8), left: make(chan bool, 8), backend: &backend{events: silence, answer: houseOf(nil, nil)}}
}

// houseOf answers what connections ask of it: with these workspaces, and these approvals.
func houseOf(have *messages.Workspaces, waiting func() (*messages.Approvals, error)) func(context.Context, proto.Message) (proto.Message, error) {
	return func(_ context.Context, m proto.Message) (proto.Message, error) {
		switch m := m.(type) {
		case *messages.WhoseIs:
			return &messages.Belongs{SessionId: m.GetId()}, nil
		case *messages.ListApprovals:
			if waiting != nil {
				return waiting()
			}
			return &messages.Approvals{}, nil
		case *messages.ToSession:
			if w := m.GetAttachWorkspace().GetWorkspace(); w != nil {
				return &messages.WorkspaceGrant{Uri: w.GetUri(), Name: w.GetName(), Trust: w.GetTrust(), Owner: "lap", Kind: "client"}, nil
			}
			return &messages.ToolReply{Content: "done"}, nil
		case *messages.ShowApproval, *messages.ResolveApproval:
			return &messages.Ack{}, nil
		}
		if have == nil {
			return &messages.Workspaces{}, nil
		}
		return have, nil
	}
}

// silence is a session in which nothing happens.
func silence(ctx context.Context, _ string, _ uint64) iter.Seq2[*messages.Event, error] {
	return func(func(*messages.Event, error) bool) { <-ctx.Done() }
}

// with are options by which everybody is one principal.
func with(p gateway.Principal) gateway.Options {
	return gateway.Options{Authenticate: func(*http.Request) (gateway.Principal, error) { return p, nil }}
}

// hear reads the next frame, which has all of these parts.
func hear(t *testing.T, ws *websocket.Conn, parts ...string) string {
	t.Helper()
	_, b, err := ws.Read(t.Context())
	if err != nil {
		t.Fatalf("%v, want a frame with %q", err, parts)
	}
	for _, part := range parts {
		if !strings.Contains(string(b), part) {
			t.Fatalf("%.500s, want %q in it", b, part)
		}
	}
	return string(b)
}

// askedFor are the questions of one kind.
func askedFor[T proto.Message](b *backend) (out []T) {
	for _, m := range b.questions() {
		if m, ok := m.(T); ok {
			out = append(out, m)
		}
	}
	return out
}
