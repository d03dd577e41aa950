package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

func newCopy(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "cp SRC DST",
		Short: "Copy a file to or from what a session keeps",
		Long: `Copy a file to or from what a session keeps.

SESSION:PATH names a file in the session's own workspace, where its agents keep notes; the other word is a file of this machine,
a folder that the file is put into, or - for stdin or stdout. A file is put there when no agent of the session is at work.
troupe ls files -s SESSION lists them, troupe rm SESSION:PATH deletes one.`,
		Args: exactly("SRC", "DST"),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, fromPath, kept := keptFile(args[0])
			to, toPath, keeps := keptFile(args[1])
			switch {
			case kept == keeps:
				e := usage("troupe cp: one of the two must be SESSION:PATH, and the other a file of this machine")
				e.hint = "troupe ls sessions lists the sessions"
				return e
			case kept:
				return a.fetchFile(cmd.Context(), from, fromPath, args[1])
			}
			return a.putFile(cmd.Context(), args[0], to, toPath)
		},
	}
}

// keptFile takes SESSION:PATH apart.
func keptFile(word string) (session, path string, ok bool) {
	session, path, ok = strings.Cut(word, ":")
	return session, path, ok && strings.HasPrefix(session, messages.SessionPrefix)
}

func (a *app) useFile(ctx context.Context, session string, m *messages.UseFile) (*messages.Files, error) {
	var out *messages.Files
	err := a.onSession(ctx, session, func(ctx context.Context, n node) error {
		var err error
		out, err = ask[*messages.Files](ctx, n, inSession(session, &messages.ToSession{Command: &messages.ToSession_UseFile{UseFile: m}}))
		return err
	})
	return out, err
}

// fetchFile writes a kept file to a new name, or over a file, of this machine.
func (a *app) fetchFile(ctx context.Context, session, name, to string) error {
	f, err := a.useFile(ctx, session, &messages.UseFile{Action: messages.UseFile_READ, Path: name})
	if err != nil {
		return err
	}
	if to == "-" {
		_, err = a.out.Write(f.GetData())
	} else {
		if !filepath.IsAbs(to) {
			to = filepath.Join(a.cwd, to)
		}
		if info, serr := os.Stat(to); serr == nil && info.IsDir() {
			to = filepath.Join(to, path.Base(path.Clean("/"+name))) // no name leads out of the folder
		}
		err = os.WriteFile(to, f.GetData(), 0o666)
	}
	if err != nil {
		return &exitError{code: exitIO, what: "write the copy: " + err.Error(), err: err}
	}
	return nil
}

// putFile puts a file of this machine where a session keeps its own.
func (a *app) putFile(ctx context.Context, from, session, name string) error {
	data, err := a.readAny(from)
	if err != nil {
		return err
	}
	if from != "-" && (name == "" || strings.HasSuffix(name, "/")) {
		name += filepath.Base(from)
	}
	_, err = a.useFile(ctx, session, &messages.UseFile{Action: messages.UseFile_PUT, Path: name, Data: data})
	return err
}

func (a *app) readAny(name string) ([]byte, error) {
	in := a.in
	if name != "-" {
		at := name
		if !filepath.IsAbs(at) {
			at = filepath.Join(a.cwd, at)
		}
		info, err := os.Stat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, &exitError{code: exitMissing, what: "no file " + name, err: err}
		case err == nil && !info.Mode().IsRegular():
			return nil, &exitError{code: exitInput, what: name + " is no regular file", hint: "files are copied one by one"}
		case err != nil:
			return nil, &exitError{code: exitIO, what: err.Error(), err: err}
		}
		f, err := os.Open(at)
		if err != nil {
			return nil, &exitError{code: exitIO, what: err.Error(), err: err}
		}
		defer func() { _ = f.Close() }() // it was only read
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, workspace.MaxFile+1))
	switch {
	case err != nil:
		return nil, &exitError{code: exitIO, what: fmt.Sprintf("read %s: %v", name, err), err: err}
	case len(data) > workspace.MaxFile:
		return nil, &exitError{code: exitInput, what: fmt.Sprintf("%s is larger than %d MiB", name, workspace.MaxFile>>20)}
	}
	return data, nil
}

func newListFiles(a *app) *cobra.Command {
	l := &listing{head: []string{"FILE", "SIZE", "CHANGED"}, empty: "the session keeps no files; put one there with: troupe cp FILE SESSION:"}
	cmd := formats(&cobra.Command{
		Use:   "files -s SESSION",
		Short: "List the files that a session keeps",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if l.session == "" {
				e := usage("troupe ls files: --session is missing")
				e.hint = "troupe ls sessions lists them"
				return e
			}
			return l.print(cmd.Context(), a, func(ctx context.Context, n node) (any, [][]string, error) {
				found, err := ask[*messages.Files](ctx, n, inSession(l.session, &messages.ToSession{Command: &messages.ToSession_UseFile{UseFile: &messages.UseFile{}}}))
				if err != nil {
					return nil, nil, err
				}
				list := found.JSON()
				var rows [][]string
				for _, f := range list {
					size := strconv.FormatInt(f.Size, 10)
					if f.State == "folder" {
						f.ID, size = f.ID+"/", ""
					}
					rows = append(rows, []string{f.ID, size, f.ModifiedAt})
				}
				return list, rows, nil
			})
		},
	}, "table", "json", "yaml")
	sessionFlag(cmd, &l.session)
	return cmd
}

// removeFile deletes a file that a session keeps.
func (a *app) removeFile(ctx context.Context, session, name string) error {
	_, err := a.useFile(ctx, session, &messages.UseFile{Action: messages.UseFile_DELETE, Path: name})
	return err
}
