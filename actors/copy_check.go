package actors

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/conversation"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/workspace"
)

// What is asked of a session that comes from a file, which anybody may have written.

// IsHome says whether a workspace is a session's own.
func IsHome(a *messages.WorkspaceAttached) bool {
	return a.GetKind() == string(workspace.KindServer) && a.GetName() == HomeName
}

// Listed says whether there is a session: neither one that was deleted, nor one that is just being written down as a
// copy.
func Listed(ctx context.Context, store persistence.Store, session string) (found bool, err error) {
	err = store.Index(ctx, SessionKey(session), func(key string, _ []byte) error {
		found = found || key == SessionKey(session)
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("look for session %s: %w", session, err)
	}
	return found, nil
}

// Claims says whether the session trusts folders, or brings rules along.
func (v *Survey) Claims() bool {
	if len(v.facts.created.GetRules()) > 0 || len(v.facts.rules) > 0 {
		return true
	}
	for _, a := range v.facts.attached {
		if !IsHome(a) && a.GetTrust() != messages.Trust_RESTRICTED {
			return true
		}
	}
	return false
}

// Misplaced looks for a workspace that is not where its address says, or not of a kind that a session may bring along. at is
// the record that attached it.
func (v *Survey) Misplaced() (at uint64, why string) {
	homes := 0
	for _, a := range v.facts.attached {
		at = v.placed[a.GetUri()]
		addr, err := workspace.Parse(a.GetUri(), a.GetOwner())
		switch {
		case err != nil:
			return at, fmt.Sprintf("workspace %q: %v", a.GetUri(), err)
		case isCopy(a) && (v.remakable(a, addr) || v.leftBehind(a, addr)):
		case string(addr.Kind) != a.GetKind():
			return at, fmt.Sprintf("workspace %s is said to be of kind %q", addr.Canonical, a.GetKind())
		case IsHome(a):
			homes++
			if homes > 1 || !strings.HasSuffix(addr.Path, "/sessions/"+v.Session) {
				return at, fmt.Sprintf("workspace %s is said to be the session's own", addr.Canonical)
			}
		case addr.Kind != workspace.KindClient || addr.Host != workspace.LocalHost || a.GetPath() != addr.Path:
			return at, fmt.Sprintf("workspace %s in folder %q cannot come along", addr.Canonical, a.GetPath())
		}
	}
	return 0, ""
}

// remakable says whether a workspace is a clone of the session's own, which can be made again from what is written of it.
func (v *Survey) remakable(a *messages.WorkspaceAttached, addr *workspace.Address) bool {
	source, err := workspace.Parse(a.GetSource(), a.GetOwner())
	id, ok := strings.CutPrefix(addr.Path, "/copies/"+v.Session+"/")
	return err == nil && source.Kind == workspace.KindGit && source.Canonical == a.GetSource() && a.GetKind() == string(workspace.KindGit) &&
		ok && messages.ValidID(copyPrefix, id) && a.GetProjectDir() == "" && len(a.GetCommit()) >= 40 && strings.Trim(a.GetCommit(), "0123456789abcdef") == ""
}

// leftBehind says whether a workspace is a copy of a folder, or of another copy, that the session or one of its workers has: its files do not
// come along, and calls there find no workspace.
func (v *Survey) leftBehind(a *messages.WorkspaceAttached, addr *workspace.Address) bool {
	id, ok := strings.CutPrefix(addr.Path, "/copies/"+v.Session+"/")
	if !ok || addr.Kind != workspace.KindServer || !messages.ValidID(copyPrefix, id) || a.GetKind() != string(workspace.KindClient) || a.GetCommit() != "" ||
		a.GetWorker() != "" && !slices.Contains(v.order, a.GetWorker()) {
		return false
	}
	source, err := workspace.Parse(a.GetSource(), a.GetOwner())
	if err != nil || source.Canonical != a.GetSource() {
		return false
	}
	if source.Kind == workspace.KindClient && source.Host == workspace.LocalHost {
		return a.GetProjectDir() == source.Path
	}
	return a.GetProjectDir() != "" && a.GetSource() != a.GetUri() && v.placed[a.GetSource()] != 0 && v.placed[a.GetSource()] < v.placed[a.GetUri()]
}

// Closes says whether a record behind the last one is of those by which an import closes what was open, and takes back what is not
// believed.
func (v *Survey) Closes(e persistence.Entry) bool {
	open := false
	for _, s := range v.workers {
		open = open || s.Turn() != nil || s.Closed() || s.Panics() > 0 || s.Deaths() > 0 || s.Quarantined() != ""
	}
	for _, x := range v.shared {
		open = open || x.Given != nil
	}
	f, err := factIn(e.Stream, e.Record)
	switch x := f.(type) {
	case *messages.RuleRevoked:
		return x.GetBy() == byImport
	case *messages.TrustChanged:
		return x.GetBy() == byImport
	case *messages.ModeChanged:
		return x.GetBy() == byImport
	}
	if err != nil || !open {
		return false
	}
	switch x := f.(type) {
	case *messages.CancelRequested:
		return x.GetBy() == byImport
	case *messages.Released:
		return x.GetBy() == byImport
	case *messages.InputWithdrawn:
		return x.GetBy() == byImport
	case *messages.WorkerEnded:
		return true
	case *messages.ToolFinished:
		return x.GetContent() == conversation.InterruptedText
	case *messages.ToolPlanned, *messages.TurnCompleted, *messages.TurnCut:
		return true
	}
	return false
}
