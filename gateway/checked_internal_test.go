package gateway

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
)

// ownsOne is a house in which a tenant has one session, and nothing else is anybody's.
type ownsOne struct{ asked []proto.Message }

func (o *ownsOne) Ask(_ context.Context, m proto.Message) (proto.Message, error) {
	if w, asks := m.(*messages.WhoseIs); asks && w.GetId() != "ses_own" {
		return nil, messages.Fail(messages.CodeNotFound, "none", "")
	}
	o.asked = append(o.asked, m)
	return &messages.Ack{}, nil
}

func (o *ownsOne) Events(context.Context, string, uint64) iter.Seq2[*messages.Event, error] {
	return nil
}

// A word on a call, or an answer, that names no worker finds its call wherever that is: whose session it is sent to says nothing.
func TestWhatIsFoundByItsIDAloneIsOfTheTenant(t *testing.T) {
	ctx := context.WithValue(t.Context(), principalKey{}, Principal{Name: "bob", Tenant: "b", Scopes: Scopes()})
	for name, m := range map[string]*messages.ToSession{
		"call":     {Command: &messages.ToSession_ResolveCall{ResolveCall: &messages.ResolveCall{ExecId: "exe_ann"}}},
		"approval": {Command: &messages.ToSession_ResolveApproval{ResolveApproval: &messages.ResolveApproval{ApprovalId: "apr_ann"}}},
	} {
		m.SessionId = "ses_own"
		o := &ownsOne{}
		_, err := (&checked{all: o}).Ask(ctx, m)
		if f := (*messages.Failure)(nil); !errors.As(err, &f) || f.GetCode() != messages.CodeNotFound {
			t.Errorf("%s of another tenant: %v", name, err)
		}
		for _, q := range o.asked {
			if _, asks := q.(*messages.WhoseIs); !asks {
				t.Errorf("%s of another tenant: the house is asked %v", name, q)
			}
		}
	}
}

// damagedHouse has lost a stream.
type damagedHouse struct{ ownsOne }

func (*damagedHouse) Ask(context.Context, proto.Message) (proto.Message, error) {
	return &messages.Damage{Findings: []*messages.Finding{{Stream: "ses/ses_ann", Seq: 3, Problem: "lost records of ses_ann"}}}, nil
}

func TestATenantIsToldThatTheStoreIsDamagedAndNoNames(t *testing.T) {
	for _, x := range []struct {
		who   Principal
		names bool
	}{
		{Principal{Name: "bob", Tenant: "b", Scopes: Scopes()}, false},
		{Principal{Name: "reader", Scopes: []Scope{ScopeRead}}, false},
		{Principal{Name: "boss", Scopes: Scopes()}, true},
		{Principal{Owner: true}, true},
	} {
		reply, err := (&checked{all: &damagedHouse{}}).Ask(context.WithValue(t.Context(), principalKey{}, x.who), &messages.ListDamage{})
		d, _ := reply.(*messages.Damage)
		if err != nil || len(d.GetFindings()) != 1 || strings.Contains(d.String(), "ses_ann") != x.names {
			t.Errorf("%+v: %v, %v", x.who, reply, err)
		}
	}
}

// unreadHouse cannot read the calls of two sessions, of which a tenant has one.
type unreadHouse struct{ ownsOne }

func (o *unreadHouse) Ask(ctx context.Context, m proto.Message) (proto.Message, error) {
	if _, lists := m.(*messages.ListCalls); !lists {
		return o.ownsOne.Ask(ctx, m)
	}
	return &messages.Calls{Unread: []*messages.Unread{{SessionId: "ses_ann", WorkerId: "wrk_ann"}, {SessionId: "ses_own", WorkerId: "wrk_own"}}}, nil
}

func TestATenantIsToldOfItsOwnCallsThatCannotBeRead(t *testing.T) {
	ctx := context.WithValue(t.Context(), principalKey{}, Principal{Name: "bob", Tenant: "b", Scopes: Scopes()})
	reply, err := (&checked{all: &unreadHouse{}}).Ask(ctx, &messages.ListCalls{})
	calls, _ := reply.(*messages.Calls)
	if err != nil || len(calls.GetUnread()) != 1 || calls.GetUnread()[0].GetWorkerId() != "wrk_own" {
		t.Errorf("%v, %v", reply, err)
	}
}
