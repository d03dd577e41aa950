package troupe_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/messages"
)

// TestAMachinesNameIsEachTenantsOwn gives two tenants a folder of the same address, on machines of the same name.
func TestAMachinesNameIsEachTenantsOwn(t *testing.T) {
	o := newOffice(t)
	const uri = "laptop:~/src"
	ids, sessions := map[string]string{}, map[string]string{}
	for _, tenant := range []string{"", "north", "south"} {
		token := o.token("ann-"+tenant, tenant, allScopes()...)
		status, text := o.do(token, "POST", "/api/sessions", `{"workspaces":[{"uri":"`+uri+`"}]}`)
		var v messages.SessionJSON
		if err := json.Unmarshal([]byte(text), &v); err != nil || status != 201 {
			t.Fatalf("%d %s", status, text)
		}
		sessions[tenant] = v.ID
		shown := ask[*messages.SessionView](t, o.rt, &messages.ToSession{SessionId: v.ID, Command: &messages.ToSession_Describe{Describe: &messages.DescribeSession{}}})
		for _, g := range shown.GetWorkspaces() {
			if g.GetUri() == uri {
				ids[tenant] = g.GetId()
			}
		}
		connect := func(token string) error {
			_, leave, err := o.rt.ConnectOwner(t.Context(), &messages.ConnectOwner{SessionId: v.ID, Uri: uri, Client: token, TokenId: token}, nobody{})
			if err == nil {
				leave(true)
			}
			return err
		}
		if err := connect("ann"); err != nil {
			t.Errorf("tenant %q may not have its own machine of that name: %v", tenant, err)
		}
		err := connect("bob")
		if err == nil || !strings.Contains(err.Error(), "the host name laptop belongs to another token") || tenant != "" && strings.Contains(err.Error(), tenant) {
			t.Errorf("tenant %q: another token takes the machine: %v", tenant, err)
		}
	}
	if ids[""] == "" || ids[""] == ids["north"] || ids["north"] == ids["south"] || ids["south"] == ids[""] {
		t.Errorf("the ids are %v", ids)
	}
	for tenant, want := range map[string]int{"north": 200, "south": 404} {
		if tenant == "north" {
			if status, text := o.do("ann-north", "PUT", "/api/sessions/"+sessions["north"]+"/fields", `{"schema":"{\"properties\":{\"phase\":{\"type\":\"string\"}}}","workspace":"laptop"}`); status >= 300 {
				t.Fatalf("%d %s", status, text)
			}
		}
		_, text := o.do("ann-"+tenant, "GET", "/api/sessions/"+sessions[tenant]+"/fields?workspace=laptop", "")
		if strings.Contains(text, "phase") != (want == 200) {
			t.Errorf("tenant %s sees the fields %s", tenant, text)
		}
	}
}

// nobody is a connection that is never given a call.
type nobody struct{}

func (nobody) Deliver(ctx context.Context, _ *messages.Execute, _ func(*messages.Progress)) (*messages.ToolReply, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
func (nobody) Cancel(string)         {}
func (nobody) Settle(string, uint32) {}
