package actors

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// Sweep removes copies that a crash left unfinished. It is for the start, when nobody is writing one.
func Sweep(ctx context.Context, svc *Services) error {
	var left []string
	err := svc.Store.Index(ctx, markKey(""), func(key string, value []byte) error {
		if string(value) == markUnfinished {
			left = append(left, strings.TrimPrefix(key, markKey("")))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for unfinished copies: %w", err)
	}
	var errs []error
	for _, id := range left {
		errs = append(errs, remove(ctx, svc, id))
	}
	return errors.Join(errs...)
}

// remove takes back what was written of a copy: its records, and then its mark. Cut off in the middle, it is begun again at the
// next start.
func remove(ctx context.Context, svc *Services, session string) error {
	err := os.RemoveAll(homePath(svc, session))
	f, ok := svc.Store.(persistence.Forgetter)
	if !ok || err != nil {
		return err // the mark stays, and nobody sees what it stands for
	}
	if err := f.Forget(ctx, session); err != nil {
		return err
	}
	l, err := svc.Store.Claim(ctx, messages.SessionStream(session), svc.Node)
	if err != nil {
		return fmt.Errorf("remove the unfinished copy %s: %w", session, err)
	}
	if r, ok := svc.Store.(persistence.Releaser); ok {
		defer r.Release(l)
	}
	_, err = svc.Store.Append(ctx, persistence.Batch{
		Lease: l, Expect: l.Next, Session: session, Index: []persistence.IndexOp{{Key: markKey(session), Delete: true}},
	})
	if err != nil {
		return fmt.Errorf("remove the unfinished copy %s: %w", session, err)
	}
	return nil
}
