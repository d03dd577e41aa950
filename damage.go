package troupe

import (
	"context"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// listDamage says what the store is known to have lost. A store of another kind that says nothing about it has lost nothing.
func (rt *Runtime) listDamage(ctx context.Context) (*messages.Damage, error) {
	out := &messages.Damage{}
	store, ok := rt.svc.Store.(persistence.Damaged)
	if !ok {
		return out, nil
	}
	all, err := store.Damage(ctx)
	for _, f := range all {
		out.Findings = append(out.Findings, &messages.Finding{Stream: f.Stream, Seq: f.Seq, Problem: f.Problem})
	}
	return out, err
}
