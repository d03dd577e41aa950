package actors

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// preview makes what a person is shown of a call that asks. It changes nothing and is not counted as an effect.
func (r *run) preview(tc *tools.Context, tool tools.Tool, args json.RawMessage) *messages.ToolReply {
	var p *tools.Preview
	var err error
	if crash := act.Guard(func() { p, err = tools.PreviewOf(tool, tc, args) }); crash != nil {
		return r.crashed(crash)
	}
	if err != nil { // the call would fail in the same way: nobody need be asked
		return r.failed(tc.Signal, err)
	}
	reply := failedReply(r.m, messages.ToolFinished_OK, "", "")
	reply.Previewed, reply.PreviewKind, reply.Diff, reply.Files = true, p.Kind, p.Text, p.Files
	return reply
}

// unapproved looks right before the run whether the call is what was approved: its arguments, and the files that the
// person was shown. nil: it is, or it needed no approval.
func (r *run) unapproved(tc *tools.Context, tool tools.Tool, args json.RawMessage) *messages.ToolReply {
	if bad := r.approvedArguments(args); bad != nil || len(r.m.GetApprovedFiles()) == 0 {
		return bad
	}
	p, ok := tool.(tools.Preparer)
	if !ok {
		return nil
	}
	var files []*messages.FileHash
	var err error
	if crash := act.Guard(func() { files, err = p.Prepare(tc, args) }); crash != nil {
		return r.crashed(crash)
	}
	if err != nil {
		return r.unfit(tc.Signal, err)
	}
	if !r.approvedFiles(files) {
		return r.changed()
	}
	return nil
}

func (r *run) approvedArguments(args json.RawMessage) *messages.ToolReply {
	if len(r.m.GetApprovedHash()) == 0 {
		return nil
	}
	_, sum, err := tools.Canonical(args)
	if err == nil && bytes.Equal(tools.ApprovalHash(r.m.GetTool(), sum[:], r.m.GetWorkspace().GetUri()), r.m.GetApprovedHash()) {
		return nil
	}
	return failedReply(r.m, messages.ToolFinished_ERROR, tools.CodeConcurrentModification, "Not run: the call is not what was approved")
}

func (r *run) approvedFiles(now []*messages.FileHash) bool {
	return len(r.m.GetApprovedHash()) == 0 || tools.SameFiles(r.m.GetApprovedFiles(), now, r.m.GetApprovedEdited())
}

// unfit is the result of a call that cannot be prepared. One that could be when it was shown finds another world now.
func (r *run) unfit(ctx context.Context, err error) *messages.ToolReply {
	if len(r.m.GetApprovedHash()) == 0 || r.m.GetApprovedEdited() || ctx.Err() != nil {
		return r.failed(ctx, err)
	}
	return r.changed()
}

func (r *run) changed() *messages.ToolReply {
	return failedReply(r.m, messages.ToolFinished_ERROR, tools.CodeConcurrentModification,
		"Not run: what was approved has changed since it was shown; read it again and ask anew")
}
