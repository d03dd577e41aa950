package persistence

import (
	"context"
	"io"

	"github.com/troupe-dev/troupe/messages"
)

// Backuper is a store that can be copied while it is used.
type Backuper interface {
	// Backup writes everything that is durable now to w, or what was written since an earlier backup's
	// mark; a nil mark is everything. What it writes proves by its end that it is whole; a cut-off copy is
	// of no use. Errors: ErrInvalid for the mark of another store, those of w, ErrUnavailable.
	Backup(ctx context.Context, w io.Writer, since *messages.BackupMark) (*messages.BackupMark, error)
}
