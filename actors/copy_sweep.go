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
	left, err := with(ctx, svc, markUnfinished)
	if err != nil {
		return fmt.Errorf("look for unfinished copies: %w", err)
	}
	var errs []error
	for _, id := range left {
		errs = append(errs, remove(ctx, svc, id))
	}
	return errors.Join(errs...)
}

// Doomed are the sessions whose deletion was begun.
func Doomed(ctx context.Context, svc *Services) ([]string, error) {
	ids, err := with(ctx, svc, markDoomed)
	if err != nil {
		return nil, fmt.Errorf("look for unfinished deletions: %w", err)
	}
	return ids, nil
}

// with are the sessions that have a mark.
func with(ctx context.Context, svc *Services, mark string) (ids []string, err error) {
	err = svc.Store.Index(ctx, markKey(""), func(key string, value []byte) error {
		if string(value) == mark {
			ids = append(ids, strings.TrimPrefix(key, markKey("")))
		}
		return nil
	})
	return ids, err
}

// remove takes back what was written of a copy, and its mark with it. What a crash cuts is finished when the store is opened, or
// begun again at the next start.
func remove(ctx context.Context, svc *Services, session string) error {
	if err := os.RemoveAll(homePath(svc, session)); err != nil {
		return err // the mark stays, and nobody sees what it stands for
	}
	err := svc.Store.Delete(ctx, persistence.Deletion{Session: session, Streams: []string{messages.SessionStream(session)}, Index: []string{markKey(session)}})
	if err != nil {
		return fmt.Errorf("remove the unfinished copy %s: %w", session, err)
	}
	return nil
}
