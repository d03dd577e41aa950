package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/messages"
)

func newExport(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "export SESSION [FILE | -]",
		Short: "Write a session to one file",
		Long: `Write a session to one file: every record of it, as JSON lines (docs/export.md).

Without FILE, or with -, it goes to stdout. A file is readable by its owner alone: it holds all that
was said, what tools read and wrote, and variables that the session was given. It is there whole or
not at all. The session may be at work; it is not woken.`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			loaded, err := a.load("")
			if err != nil {
				return err
			}
			file := "-"
			if len(args) > 1 {
				file = args[1]
			}
			none := func() error { return noSession(args[0]) }
			return a.look(cmd.Context(), loaded, none, func(ctx context.Context, n node) error {
				all, err := ask[*messages.Workspaces](ctx, n, &messages.ListWorkspaces{SessionId: args[0]})
				if err == nil { // else the export says what is wrong
					var has []messages.WorkspaceJSON
					for _, w := range all.GetWorkspaces() {
						has = append(has, w.GetWorkspace().JSON())
					}
					a.tellLeft(has)
				}
				if file == "-" {
					return a.exportTo(ctx, n, args[0], a.out)
				}
				return a.exportFile(ctx, n, args[0], file)
			})
		},
	}
}

// exportTo writes a session. What cannot be written is an error of output.
func (a *app) exportTo(ctx context.Context, n node, session string, w io.Writer) error {
	out := &failedWriter{w: w}
	err := n.Export(ctx, session, out)
	if out.err != nil {
		return &exitError{code: exitIO, what: "write the export: " + out.err.Error(), err: out.err}
	}
	return err
}

// failedWriter remembers why it failed.
type failedWriter struct {
	w   io.Writer
	n   int64
	err error
}

func (f *failedWriter) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	f.n += int64(n)
	if err != nil {
		f.err = err
	}
	return n, err
}

// exportFile writes beside the file, and puts it in its place when it is whole.
func (a *app) exportFile(ctx context.Context, n node, session, name string) error {
	path := a.path(name)
	fail := func(err error) error {
		return &exitError{code: exitIO, what: fmt.Sprintf("write the export %s: %v", visible(name), err), err: err}
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return &exitError{code: exitInput, what: fmt.Sprintf("%s exists: an export replaces nothing", visible(name)), hint: "name another file"}
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".troupe-export-*") // readable by its owner alone
	if err != nil {
		return fail(err)
	}
	drop := func(err error) error { return errors.Join(err, f.Close(), os.Remove(f.Name())) }
	if err := a.exportTo(ctx, n, session, f); err != nil {
		_ = drop(nil) // what went wrong before says more
		return err
	}
	if err := f.Sync(); err != nil {
		return fail(drop(err))
	}
	if err := f.Close(); err != nil {
		return fail(errors.Join(err, os.Remove(f.Name())))
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fail(errors.Join(err, os.Remove(f.Name())))
	}
	a.note("exported %s to %s: keep it as secret as the conversation", visible(session), visible(name))
	return nil
}

func newImport(a *app) *cobra.Command {
	m := &messages.ImportSession{}
	cmd := formats(&cobra.Command{
		Use:   "import FILE | -",
		Short: "Bring in a session that was exported",
		Long: `Bring in a session that was exported.

The file is checked as a whole first; then the session is there as a whole, or nothing of it. It keeps
its ids, which must be free: what is here already, just so, is left as it is. What was open in it is
closed, as the original may still be at work.

Whoever wrote the file may not have been you: folders are restricted, and rules that the session
brings along do not count, unless --keep-trust says so. Nor do its commands run less confined than is
configured here (workspaces.NAME.mode).`,
		Args: exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.importFrom(cmd.Context(), args[0], m) },
	}, "text", "json", "yaml")
	cmd.Flags().BoolVar(&m.NewId, "new-id", false, "under new ids, beside a session with the same ones")
	cmd.Flags().BoolVar(&m.KeepTrust, "keep-trust", false, "keep the trust in folders, the rules, and where commands run, as they are in the file")
	return cmd
}

func (a *app) importFrom(ctx context.Context, name string, m *messages.ImportSession) error {
	in := a.in
	if name != "-" {
		f, err := os.Open(a.path(name))
		if err != nil {
			return fmt.Errorf("import: %w", err)
		}
		defer func() { _ = f.Close() }() // it was only read
		if info, err := f.Stat(); err != nil || info.IsDir() {
			return &exitError{code: exitInput, what: fmt.Sprintf("import %s: it is no file", visible(name)), err: err}
		}
		in = f
	}
	loaded, err := a.load("")
	if err != nil {
		return err
	}
	h, err := a.openHouse(ctx, opening{loaded: loaded, models: newModels(loaded, a.secrets)})
	if err != nil {
		return err
	}
	err = h.during(ctx, func(ctx context.Context) error {
		done, err := h.ImportSession(ctx, in, m)
		if err != nil {
			return err
		}
		return a.printImported(done)
	})
	if cerr := h.close(ctx); err == nil && cerr != nil {
		a.note("troupe: warning: %v", cerr)
	}
	return err
}

func (a *app) printImported(m *messages.Imported) error {
	j := m.JSON()
	if j.Identical {
		a.note("session %s is here already, just so: nothing was changed", visible(j.ID))
	} else {
		a.note("imported %s with %s", visible(j.Origin), count(int(j.Records), "record")) //nolint:gosec // as many lines were read
		a.tellClosed(j.ClosedCalls, j.ClosedTurns, j.Staged)
		a.tellLeft(j.Session.Workspaces)
		if j.Restricted {
			a.note("it was trusted where it comes from; here its folders are restricted and its rules do not count (see --keep-trust)")
		}
	}
	for _, m := range j.Modes {
		a.note("commands in %s run in mode %s here, and not %s", visible(m.Workspace), m.Mode, visible(m.InsteadOf))
	}
	a.note(`go on with: troupe run -s %s "..."`, visible(j.ID))
	return a.emit(j, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, j.ID)
		return err
	})
}
