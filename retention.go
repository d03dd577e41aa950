package troupe

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/actors"
	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// retentionEvery is how often sessions are looked for whose time has come.
const retentionEvery = 24 * time.Hour

// homeYoung is how long a home of no session is left alone.
const homeYoung = time.Hour

// retain applies the retention now and once a day, until ctx ends.
func (rt *Runtime) retain(ctx context.Context, age time.Duration) {
	tick := time.NewTicker(retentionEvery)
	defer tick.Stop()
	for {
		gone, err := rt.Forget(ctx, rt.svc.Now().Add(-age))
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			rt.svc.Log.Error("retention failed", "err", err)
		case len(gone) > 0:
			rt.svc.Log.Info("sessions were deleted for their age", "count", len(gone), "age", age.String())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Forget deletes every session in which nothing was written since a time, and in which nothing is open: no turn, no
// input, no call in doubt, no timer, no quarantine. It returns their ids. What is in memory stays.
func (rt *Runtime) Forget(ctx context.Context, since time.Time) ([]string, error) {
	live, err := rt.live(ctx)
	if err != nil {
		return nil, err
	}
	var ids []string
	err = rt.svc.Store.Streams(ctx, "ses/", func(stream string) error {
		ids = append(ids, strings.TrimPrefix(stream, "ses/"))
		return nil
	})
	if errors.Is(err, persistence.ErrCorrupt) { // those that are lost stay until a repair
		rt.svc.Log.Warn("sessions may be lost, and are not looked at for their age", "err", err)
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	timers, err := rt.timerIDs(ctx)
	if err != nil {
		return nil, err
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return live[id] || len(timers[id]) > 0 })
	var old []string
	for _, id := range ids {
		over, err := rt.over(ctx, id, since)
		if err != nil && ctx.Err() != nil {
			return nil, err
		}
		if users, uerr := rt.usersOf(ctx, id); uerr != nil || len(users) > 0 {
			continue
		}
		if err == nil && over { // one that does not read is for people to look at
			old = append(old, id)
		}
	}
	return old, rt.deleteSessions(ctx, old)
}

// over tells whether a session's last record is older than a time, and nothing is open in it.
func (rt *Runtime) over(ctx context.Context, id string, since time.Time) (bool, error) {
	cursor, err := rt.svc.Store.Cursor(ctx, id)
	if err != nil || cursor == 0 {
		return false, err
	}
	var at int64
	err = rt.svc.Store.ReadSession(ctx, id, cursor-1, func(e persistence.Entry) error { at = e.Record.GetAtUnixMs(); return nil })
	if err != nil || at == 0 || !time.UnixMilli(at).Before(since) {
		return false, err
	}
	v, err := rt.session(ctx, id)
	var f *Failure
	if errors.As(err, &f) && f.GetCode() == messages.CodeNotFound { // it was closed
		return true, nil
	}
	if err != nil || v.GetState() != "inactive" {
		return false, err
	}
	for _, w := range v.GetWorkers() {
		if w.GetStaged() > 0 || w.GetInDoubt() > 0 || w.GetQuarantined() {
			return false, nil
		}
	}
	return true, nil
}

// timerIDs lists the timers that are set, by session.
func (rt *Runtime) timerIDs(ctx context.Context) (map[string][]string, error) {
	out := map[string][]string{}
	err := rt.svc.Store.Due(ctx, time.Unix(1<<40, 0), func(t persistence.Timer) error {
		if session, _, ok := strings.Cut(strings.TrimPrefix(t.ID, "tmr/"), "/"); ok {
			out[session] = append(out[session], t.ID)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list timers: %w", err)
	}
	return out, nil
}

// closeAndForget closes a session, and deletes everything of it once it has left memory. What is closed already, or cannot be
// opened for damage, is deleted as it is. What a crash leaves of one that was open goes at the next start.
func (rt *Runtime) closeAndForget(ctx context.Context, m *messages.ToSession) (proto.Message, error) {
	users, err := rt.usersOf(ctx, m.GetSessionId())
	if err != nil {
		return nil, err
	}
	if len(users) > 0 {
		return nil, messages.Fail(messages.CodeConflict, fmt.Sprintf("session %s cannot be deleted: its files are attached to session %s", m.GetSessionId(), users[0]),
			"take them from there with `troupe workspace detach`, or close it only (`troupe rm --keep`)")
	}
	_, err = send[proto.Message](ctx, rt, m)
	var f *Failure
	if err != nil && (!errors.As(err, &f) || f.GetCode() != messages.CodeClosed && f.GetCode() != messages.CodeCorrupt) {
		return nil, err
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		there, err := rt.inMemory(ctx, m.GetSessionId())
		if err != nil {
			return nil, err
		}
		if !there {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	ids := []string{m.GetSessionId()}
	err = rt.removeHomes(ids) // first: afterwards nobody would know of one that a crash leaves
	if err == nil {
		err = rt.deleteSessions(ctx, ids)
	}
	if err != nil {
		return nil, fmt.Errorf("delete session %s: %w", m.GetSessionId(), err)
	}
	return &messages.Ack{}, nil
}

// usersOf lists the other sessions that have the files of one attached.
func (rt *Runtime) usersOf(ctx context.Context, id string) ([]string, error) {
	var out []string
	uri := rt.svc.ServerName + ":/sessions/" + id
	err := rt.svc.Store.Index(ctx, actors.SessionKey(""), func(key string, value []byte) error {
		v := &messages.SessionView{}
		if err := proto.Unmarshal(value, v); err != nil {
			return fmt.Errorf("decode listing entry %s: %w", key, err)
		}
		if v.GetId() != id && slices.ContainsFunc(v.GetWorkspaces(), func(w *messages.WorkspaceGrant) bool { return w.GetUri() == uri }) {
			out = append(out, v.GetId())
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for who uses the files of %s: %w", id, err)
	}
	return out, nil
}

// sweep removes what a crash has left of copies that were not finished and of sessions that were being deleted. It is for the
// start, before there are actors.
func (rt *Runtime) sweep(ctx context.Context) error {
	if err := actors.Sweep(ctx, rt.svc); err != nil {
		return err
	}
	ids, err := actors.Doomed(ctx, rt.svc)
	if err == nil {
		err = rt.removeHomes(ids)
	}
	if err == nil {
		err = rt.deleteSessions(ctx, ids)
	}
	return err
}

// inMemory says whether there are actors of a session, also ones that are ending.
func (rt *Runtime) inMemory(ctx context.Context, id string) (bool, error) {
	tree, err := act.Ask[*messages.Tree](ctx, rt.sys, rt.root, &messages.DescribeTree{})
	if err != nil {
		return false, fmt.Errorf("look at the live tree: %w", err)
	}
	return slices.ContainsFunc(tree.GetRoot().GetChildren(), func(c *messages.ActorView) bool {
		return c.GetKind() == "session" && c.GetId() == id
	}), nil
}

// deleteSessions removes sessions that are not in memory: journals, listings, timers, blobs that nobody else
// refers to, and homes.
func (rt *Runtime) deleteSessions(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	timers, err := rt.timerIDs(ctx)
	if err != nil {
		return err
	}
	all := make([]persistence.Deletion, len(ids))
	at := map[string]*persistence.Deletion{}
	for i, id := range ids {
		all[i] = persistence.Deletion{Session: id, Streams: append([]string{messages.SessionStream(id), messages.RunStream(messages.RunOf(id))}, rt.svc.FieldStreams(id)...), Timers: timers[id]}
		at[id] = &all[i]
	}
	err = rt.svc.Store.Index(ctx, "", func(key string, _ []byte) error {
		for _, part := range strings.Split(key, "/") {
			if d := at[part]; d != nil {
				d.Index = append(d.Index, key)
				if stream := NeededStream(key); stream != "" && !slices.Contains(d.Streams, stream) {
					d.Streams = append(d.Streams, stream)
				}
				break
			}
		}
		return nil
	})
	if errors.Is(err, persistence.ErrCorrupt) { // what it does not list is lost, or belongs to no session
		rt.svc.Log.Warn("the index is damaged: what is listed of the sessions goes", "err", err)
		err = nil
	}
	if err != nil {
		return fmt.Errorf("list what belongs to the sessions: %w", err)
	}
	if err := rt.svc.Store.Delete(ctx, all...); err != nil {
		return err
	}
	return errors.Join(rt.removeHomes(ids), rt.sweepHomes(ctx))
}

func (rt *Runtime) removeHomes(ids []string) error {
	var errs []error
	for _, id := range ids {
		if filepath.IsLocal(id) && !strings.ContainsAny(id, `/\`) {
			errs = append(errs, os.RemoveAll(filepath.Join(rt.svc.DataDir, "homes", id)), os.RemoveAll(filepath.Join(rt.svc.DataDir, "copies", id)))
		}
	}
	return errors.Join(errs...)
}

// sweepHomes removes the homes of sessions of which there is nothing else: a crash came before their deletion was through. One that
// was changed just now may be of a session that is being made.
func (rt *Runtime) sweepHomes(ctx context.Context) error {
	dir := filepath.Join(rt.svc.DataDir, "homes")
	all, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list homes: %w", err)
	}
	var errs []error
	for _, e := range all {
		info, err := e.Info()
		if err != nil || !messages.ValidID(messages.SessionPrefix, e.Name()) || time.Since(info.ModTime()) < homeYoung {
			continue
		}
		cursor, err := rt.svc.Store.Cursor(ctx, e.Name())
		if errors.Is(err, persistence.ErrCorrupt) { // of one that is damaged it stays
			continue
		}
		if err == nil && cursor == 0 {
			err = os.RemoveAll(filepath.Join(dir, e.Name()))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
