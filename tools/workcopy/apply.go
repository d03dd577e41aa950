package workcopy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

// What is applied is first written down whole, beside the copy, with what it replaces: that is the decision. Then the folder is changed, file
// by file. A kill in between leaves the plan, which is carried out to the end by whoever looks at the copy next, and when the process
// starts. A file that is found to be neither as it was nor as it is to be stops that, and everything is put back.

// plan is what stands on disk of an apply.
type plan struct {
	Folder string `json:"folder"`
	Ops    []op   `json:"ops"`
}

// op changes one file. Contents stand in files of the plan: new/N, old/N, base/N.
type op struct {
	Path     string
	Old, New *state // nil: nothing is there
	Base     *state // what the copy has
}

type state struct {
	Link string      `json:",omitempty"`
	Sum  string      `json:",omitempty"`
	Mode fs.FileMode `json:",omitempty"`
}

func stateOf(e *entry) *state {
	if e == nil {
		return nil
	}
	return &state{e.link, e.sum, e.mode}
}

func (s *state) entry() *entry {
	if s == nil {
		return nil
	}
	return &entry{link: s.Link, sum: s.Sum, mode: s.Mode}
}

// Apply brings what was changed in the copy dir back to its folder: all of it, or nothing. A *messages.Failure of code conflict
// names the files that stand in the way. Nobody else may work in either meanwhile.
func (c *Copies) Apply(ctx context.Context, folder, dir string) (*messages.Changes, error) {
	done, err := c.turns.take(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := resume(folder, dir); err != nil {
		return nil, asFailure("finish what was being applied to "+folder, err)
	}
	x, err := compare(ctx, folder, dir)
	if err != nil {
		return nil, asFailure("compare the copy with "+folder, err)
	}
	defer x.close()
	if x.folder == nil {
		return nil, messages.Fail(messages.CodeNoWorkspace, folder+" is not there any more: nothing was applied", "`troupe diff` shows what was changed")
	}
	all, err := x.steps()
	if err != nil {
		return nil, asFailure("compare the copy with "+folder, err)
	}
	var blocked []string
	for _, s := range all {
		if s.GetConflict() != "" {
			blocked = append(blocked, s.name+": "+s.GetConflict())
		}
	}
	if len(blocked) > 0 {
		return nil, messages.Fail(messages.CodeConflict, "nothing was applied: "+strings.Join(blocked[:min(len(blocked), 20)], "; "),
			"bring these files of the copy and of the folder together, and apply again")
	}
	if err = x.write(folder, dir, all); err == nil {
		err = resume(folder, dir)
	}
	if err != nil {
		return nil, asFailure("apply to "+folder, err)
	}
	out := told(all, filepath.Join(dir, TreeName))
	out.Applied = true
	return out, nil
}

// write writes the plan down. It counts from the rename on.
func (c *comparison) write(folder, dir string, all []*step) error {
	part := filepath.Join(dir, planName+".part")
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	for _, sub := range []string{"new", "old", "base"} {
		if err := os.MkdirAll(filepath.Join(part, sub), 0o700); err != nil {
			return err
		}
	}
	p := plan{Folder: folder}
	for i, s := range all {
		o := op{Path: s.name, Old: stateOf(s.here), New: stateOf(s.tree), Base: stateOf(s.tree)}
		if s.merged != nil {
			o.New = &state{Sum: workspace.Sum(s.merged), Mode: s.tree.mode}
		}
		p.Ops = append(p.Ops, o)
		if err := c.keep(part, strconv.Itoa(i), s); err != nil {
			return err
		}
	}
	data, err := json.Marshal(p)
	if err == nil {
		err = writeSynced(filepath.Join(part, "plan.json"), data)
	}
	if err == nil {
		err = os.Rename(part, filepath.Join(dir, planName))
	}
	return errors.Join(err, syncFolder(dir))
}

// keep puts the contents of one step beside the plan.
func (c *comparison) keep(part, n string, s *step) error {
	put := func(sub string, from *side, e *entry, instead []byte) error {
		if e == nil || e.link != "" {
			return nil
		}
		data, err := instead, error(nil)
		if data == nil {
			data, err = from.bytes(s.name)
		}
		if err == nil && instead == nil && workspace.Sum(data) != e.sum {
			err = messages.Fail(messages.CodeConflict, s.name+" changes while it is looked at", "try again when nobody works there")
		}
		if err != nil {
			return err
		}
		return writeSynced(filepath.Join(part, sub, n), data)
	}
	return errors.Join(put("new", c.tree, s.tree, s.merged), put("old", c.folder, s.here, nil), put("base", c.tree, s.tree, nil))
}

func writeSynced(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	_ = d.Sync() // not every system can
	return d.Close()
}

// ResumeAll finishes what a kill has cut off in any copy below a folder: COPIES/SESSION/COPY. What cannot be finished stays as it
// is until somebody looks at that copy, and is told why.
func ResumeAll(copies string, log *slog.Logger) {
	found, _ := filepath.Glob(filepath.Join(copies, "*", "*", planName, "plan.json")) // the pattern is sound
	for _, name := range found {
		if err := resume("", filepath.Dir(filepath.Dir(name))); err != nil {
			log.Warn("what was being applied when the process ended is not finished", "path", name, "err", err)
		}
	}
}

// resume carries out a plan that stands there. The folder is the plan's own, which must be the given one, if one is given.
func resume(folder, dir string) error {
	at := filepath.Join(dir, planName)
	data, err := os.ReadFile(filepath.Join(at, "plan.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var p plan
	if err == nil {
		err = json.Unmarshal(data, &p)
	}
	if err != nil {
		return fmt.Errorf("read the plan: %w", err)
	}
	if folder != "" && folder != p.Folder {
		return fmt.Errorf("the plan is for %s", p.Folder)
	}
	to, err := open(p.Folder)
	if err != nil {
		return err
	}
	defer to.close()
	base, err := open(filepath.Join(dir, baseName))
	if err != nil {
		return err
	}
	defer base.close()
	for i, o := range p.Ops {
		if err := to.turn(o.Path, o.Old, o.New, filepath.Join(at, "new", strconv.Itoa(i))); err != nil {
			return to.putBack(p.Ops[:i+1], at, err)
		}
	}
	for i, o := range p.Ops {
		e, err := base.entry(o.Path)
		if err == nil {
			err = base.turn(o.Path, stateOf(e), o.Base, filepath.Join(at, "base", strconv.Itoa(i)))
		}
		if err != nil {
			return err
		}
	}
	return os.RemoveAll(at)
}

// putBack undoes what was done of a plan, and forgets it. What somebody else has changed since stays theirs.
func (s *side) putBack(ops []op, at string, why error) error {
	for i := len(ops) - 1; i >= 0; i-- {
		o := ops[i]
		if e, err := s.entry(o.Path); err == nil && e.same(o.New.entry()) {
			if err := s.turn(o.Path, o.New, o.Old, filepath.Join(at, "old", strconv.Itoa(i))); err != nil {
				return errors.Join(why, err) // the plan stays
			}
		}
	}
	if err := os.RemoveAll(at); err != nil {
		return errors.Join(why, err)
	}
	var f *messages.Failure
	if errors.As(why, &f) {
		return messages.Fail(f.GetCode(), f.GetMessage()+"; nothing was applied", f.GetHint())
	}
	return why
}

// turn makes one file what it is to be, if it is what it was; once it is, it does nothing.
func (s *side) turn(name string, from, to *state, content string) error {
	now, err := s.entry(name)
	switch {
	case err != nil:
		return err
	case now.same(to.entry()):
		return nil
	case !now.same(from.entry()):
		return messages.Fail(messages.CodeConflict, name+" was changed meanwhile", "apply again")
	case to == nil:
		if err := s.root.Remove(name); err != nil {
			return err
		}
		s.prune(path.Dir(name))
		return nil
	}
	if dir := path.Dir(name); dir != "." {
		if err := s.root.MkdirAll(dir, 0o777); err != nil {
			return err
		}
	}
	temp := path.Join(path.Dir(name), workspace.TempPrefix+"apply")
	if err := s.root.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if to.Link != "" {
		err = s.root.Symlink(strings.TrimPrefix(to.Link, "-> "), temp)
	} else {
		err = s.fill(temp, content, to.Mode)
	}
	if err == nil {
		err = s.root.Rename(temp, name)
	}
	return err
}

// prune removes folders that are empty now.
func (s *side) prune(dir string) {
	for dir != "." && s.root.Remove(dir) == nil {
		dir = path.Dir(dir)
	}
}

func (s *side) fill(name, content string, mode fs.FileMode) error {
	data, err := os.ReadFile(content)
	if err != nil {
		return err
	}
	f, err := s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
}
