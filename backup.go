package troupe

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// Backup writes everything that is durable now to w: journals, listings, timers and blobs, as of one moment,
// while the runtime goes on. With the mark of an earlier backup it writes only what changed since. Files of
// workspaces are not part of it. A copy that was cut off is recognised when it is restored.
func (rt *Runtime) Backup(ctx context.Context, w io.Writer, since *messages.BackupMark) error {
	b, ok := rt.svc.Store.(persistence.Backuper)
	if !ok {
		return messages.Fail(messages.CodeBadRequest, fmt.Sprintf("a store of kind %T cannot be backed up", rt.svc.Store), "use the backup of its own database")
	}
	_, err := b.Backup(ctx, w, since)
	switch {
	case errors.Is(err, persistence.ErrInvalid):
		return messages.Fail(messages.CodeConflict, err.Error(), "begin anew with a backup of everything")
	case errors.Is(err, persistence.ErrCorrupt):
		return messages.Fail(messages.CodeCorrupt, err.Error(), "run `troupe verify`; an older backup may hold it")
	}
	return err
}
