package actors

import (
	"fmt"
	"strings"

	"github.com/troupe-dev/troupe/messages"
)

// HostIn is the name of a machine among those of a tenant, each of which has names of its own.
func HostIn(tenant, host string) string {
	if tenant == "" {
		return host
	}
	return tenant + "/" + host // no host has a slash in it
}

// registerHost gives the name of a machine to the token that comes with it first (acceptance row 77).
func registerHost(svc *Services, m *messages.RegisterHost) *rulesChanged {
	host := m.GetHost()[strings.LastIndexByte(m.GetHost(), '/')+1:]
	fail := func(code string, err error) *rulesChanged {
		return &rulesChanged{reply: messages.Fail(code, "register host "+host+": "+err.Error(), "")}
	}
	j, f, err := openSystem(svc)
	if err != nil {
		return fail(unreadable(err), err)
	}
	defer j.Release()
	switch token, taken := f.hosts[m.GetHost()]; {
	case taken && token != m.GetTokenId():
		return &rulesChanged{facts: f, reply: messages.Fail(messages.CodeDenied,
			fmt.Sprintf("the host name %s belongs to another token", host), "use another name (`troupe attach --as NAME`)")}
	case taken:
		return &rulesChanged{facts: f, reply: &messages.Ack{}}
	}
	if err := appendSystem(svc, j, f, &messages.HostRegistered{Host: m.GetHost(), TokenId: m.GetTokenId()}); err != nil {
		return fail(messages.CodeUnavailable, err)
	}
	return &rulesChanged{facts: f, reply: &messages.Ack{}}
}
