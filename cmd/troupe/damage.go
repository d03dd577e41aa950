package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/troupe-dev/troupe/messages"
)

// mostDamage is how many lines a list says of what is missing; troupe verify says all.
const mostDamage = 10

// tellDamage says beside a list that the store is damaged: what is listed may not be all that there was.
func (a *app) tellDamage(ctx context.Context, n node) {
	d, err := ask[*messages.Damage](ctx, n, &messages.ListDamage{})
	if f := new(messages.Failure); errors.As(err, &f) && f.GetCode() == messages.CodeNotFound {
		return // a holder of an earlier release cannot say
	}
	if err != nil {
		a.note("troupe: warning: whether the store is damaged is not known: %v", err)
		return
	}
	all := d.GetFindings()
	if len(all) == 0 {
		return
	}
	a.note("troupe: warning: the store is damaged, and this list may lack what was lost:")
	for i, f := range all {
		if i == mostDamage {
			a.note("  and %d more", len(all)-i)
			break
		}
		what := f.GetProblem()
		if f.GetStream() != "" {
			what = fmt.Sprintf("%s %s", f.GetStream(), what)
		}
		a.note("  %s", oneLine(what, 400))
	}
	a.note("see all that is wrong with: troupe verify; see what could be saved with: troupe repair")
}

// tellUnread says whose calls are missing in a list, and whether any are.
func (a *app) tellUnread(list *messages.Calls) bool {
	for i, u := range list.GetUnread() {
		if i == mostDamage {
			a.note("  and %d more", len(list.GetUnread())-i)
			break
		}
		if u.GetWorkerId() == "" {
			a.note("  %s", oneLine(u.GetProblem(), 400))
			continue
		}
		a.note("troupe: warning: the calls of worker %s of session %s are not listed: %s", u.GetWorkerId(), u.GetSessionId(), oneLine(u.GetProblem(), 400))
	}
	return len(list.GetUnread()) > 0
}
