package owner

import (
	"context"
	"encoding/json"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// Preview shows what a call would change in its folder, for an approval. It changes nothing, and leaves nothing in the ledger. What only says again what
// the call is called with is not shown: the server knows that. nil is nothing to show.
func (x *Owner) Preview(ctx context.Context, m *messages.Execute) (reply *messages.ToolReply, err error) {
	defer func() {
		if p := recover(); p != nil {
			x.crashed("preview", m, p)
			reply, err = nil, nil
		}
	}()
	tool, dir, ws, fail := x.open(m)
	if fail != nil {
		return x.clean(answer(m, fail)), nil
	}
	defer func() { _ = ws.Close() }() // a folder's handle: nothing is lost with it
	if x.o.Shows != nil && x.o.Shows(ctx, m, ws) != nil {
		return nil, nil //nolint:nilnil // nothing is shown; whether the call may run is asked when it comes
	}
	tc := &tools.Context{
		Sandbox: x.o.Sandbox, Redact: x.o.Redact, WorkspaceInfo: &messages.WorkspaceInfo{Mode: "local", WorkingDirectory: dir, ProjectDir: dir, ClonePath: dir},
		Signal: ctx, Agent: m.GetAgent(), ExecID: m.GetExecId(), Trust: x.o.Trust, Known: knownFiles(m), Workspace: ws,
	}
	tc.Enter() // as for its run: files have the names that commands know
	p, fail := tools.PreviewOf(tool, tc, json.RawMessage(m.GetArguments()))
	switch {
	case fail != nil:
		return x.clean(answer(m, fail)), nil
	case p.Kind != tools.PreviewDiff:
		return nil, nil //nolint:nilnil // see above
	}
	r := answer(m, nil)
	r.Previewed, r.PreviewKind, r.Diff, r.Files = true, p.Kind, p.Text, p.Files
	return x.clean(r), nil
}

// asShown refuses a call whose files are not any more what was shown to the person who approved it.
func asShown(tool tools.Tool, tc *tools.Context, m *messages.Execute) error {
	p, prepares := tool.(tools.Preparer)
	if len(m.GetApprovedFiles()) == 0 || !prepares {
		return nil
	}
	now, err := p.Prepare(tc, json.RawMessage(m.GetArguments()))
	if err == nil && tools.SameFiles(m.GetApprovedFiles(), now, m.GetApprovedEdited()) {
		return nil
	}
	return tools.Errorf(tools.CodeConcurrentModification, "Not run: what was approved has changed since it was shown; read it again and ask anew")
}
