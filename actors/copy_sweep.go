package actors

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

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

// deleter is a store that can forget a session.
type deleter interface {
	DeleteSession(ctx context.Context, session string) error
}

// remove takes back what was written of a copy. Its mark goes with it.
func remove(ctx context.Context, svc *Services, session string) error {
	err := os.RemoveAll(homePath(svc, session))
	d, ok := svc.Store.(deleter)
	if !ok {
		return err
	}
	return errors.Join(err, d.DeleteSession(ctx, session))
}

var _ = persistence.ErrNotFound
