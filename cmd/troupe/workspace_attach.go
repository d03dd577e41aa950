package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

func newWorkspaceAttach(a *app) *cobra.Command {
	var session, trust, mode string
	cmd := formats(&cobra.Command{
		Use:   "attach URI[=NAME] --session ID",
		Short: "Give a session one more workspace",
		Long: `Give a session one more workspace: a folder of this machine, what another session keeps (troupe:/sessions/ID), or a
clone of a public repository (git:HOST/OWNER/REPO, with @BRANCH, @TAG or @COMMIT, and //FOLDER for a part of it).
A clone is made over https, runs nothing of the repository, and goes when it is detached or the session ends.

It counts from the next turn of each agent on. Agents reach it by its name. It is restricted, unless its
folder is trusted (see troupe trust) or --trust says so. Folders that overlap one of the session's are refused.`,
		Args: exactly("URI"),
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := a.attachment(args[0], trust)
			if err != nil {
				return err
			}
			switch spec.Mode = mode; mode {
			case "", "local", "container":
			default:
				e := usage("--mode %s: there is no such mode", mode)
				e.hint = "one of local, container"
				return e
			}
			return a.ofSession(cmd.Context(), "troupe workspace attach", session, func(ctx context.Context, n node) error {
				if strings.HasPrefix(strings.ToLower(spec.GetUri()), "git:") {
					a.note("troupe: clones %s; this may take a while", visible(spec.GetUri()))
				}
				g, err := ask[*messages.WorkspaceGrant](ctx, n, inSession(session, &messages.ToSession{Command: &messages.ToSession_AttachWorkspace{
					AttachWorkspace: &messages.AttachWorkspace{Workspace: spec, By: "user"},
				}}))
				if err != nil {
					return err
				}
				a.note("troupe: %s is attached as %s (%s); agents have it from their next turn on", visible(cmp.Or(g.GetSource(), g.GetUri())), visible(g.GetName()), messages.TrustName(g.GetTrust()))
				if g.GetCommit() != "" {
					a.note("troupe: the clone is of commit %s", g.GetCommit())
				}
				return a.emit(g.JSON(), func(w io.Writer) error {
					_, err := io.WriteString(w, g.GetName()+"\n")
					return err
				})
			})
		},
	}, "text", "json", "yaml")
	sessionFlag(cmd, &session)
	cmd.Flags().StringVar(&trust, "trust", "", "`LEVEL` of trust: full or restricted")
	cmd.Flags().StringVar(&mode, "mode", "", "where its commands run: `MODE` local, or container (podman or docker, sandbox.image)")
	return cmd
}

func newWorkspaceDetach(a *app) *cobra.Command {
	session := ""
	cmd := &cobra.Command{
		Use:   "detach NAME --session ID",
		Short: "Take a workspace from a session: what runs in it is ended",
		Args:  exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := args[0]
			if filepath.IsAbs(name) || strings.HasPrefix(name, "./") || strings.HasPrefix(name, "../") || name == "." || name == ".." { // else it is a name, also one with a dot
				name = a.folderName(name)
			}
			return a.ofSession(cmd.Context(), "troupe workspace detach", session, func(ctx context.Context, n node) error {
				_, err := ask[*messages.Ack](ctx, n, inSession(session, &messages.ToSession{Command: &messages.ToSession_DetachWorkspace{
					DetachWorkspace: &messages.DetachWorkspace{Workspace: name, By: "user"},
				}}))
				return err
			})
		},
	}
	sessionFlag(cmd, &session)
	return cmd
}

// folderName is the address of a folder, also of one that is no longer there: where it was, links in what is left of the way followed.
func (a *app) folderName(dir string) string {
	if addr, _, err := a.folder(dir); err == nil {
		return addr.Canonical
	}
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(a.cwd, dir)
	}
	rest := ""
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		if real, err := filepath.EvalSymlinks(at); err == nil {
			dir = filepath.Join(real, rest)
			break
		}
		if at == filepath.Dir(at) {
			break
		}
		rest = filepath.Join(filepath.Base(at), rest)
	}
	addr, err := workspace.Parse(workspace.LocalHost+":"+filepath.ToSlash(dir), "")
	if err != nil {
		return dir
	}
	return addr.Canonical
}

func newListWorkspaces(a *app, use, short string) *cobra.Command {
	l := &listing{head: []string{"WORKSPACE", "SESSION", "STATE", "KIND", "TRUST", "PRIMARY", "ADDRESS"}, empty: "there are no sessions yet"}
	cmd := formats(&cobra.Command{
		Use:   use,
		Short: short,
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return l.print(cmd.Context(), a, func(ctx context.Context, n node) (any, [][]string, error) {
				found, err := ask[*messages.Workspaces](ctx, n, &messages.ListWorkspaces{SessionId: l.session})
				if err != nil {
					return nil, nil, err
				}
				list := found.JSON()
				var rows [][]string
				for _, w := range list {
					rows = append(rows, []string{w.Name, w.Session, w.State, w.Kind, w.Trust, strconv.FormatBool(w.Primary), cmp.Or(w.Source, w.URI)})
				}
				return list, rows, nil
			})
		},
	}, "table", "json", "yaml")
	sessionFlag(cmd, &l.session)
	return cmd
}

func sessionFlag(cmd *cobra.Command, session *string) {
	cmd.Flags().StringVarP(session, "session", "s", "", "`ID` of the session")
}

// ofSession works on the session that a flag names, which must be there.
func (a *app) ofSession(ctx context.Context, command, session string, work func(ctx context.Context, n node) error) error {
	if session == "" {
		e := usage("%s: --session is missing", command)
		e.hint = "troupe ls sessions lists them"
		return e
	}
	return a.onSession(ctx, session, work)
}

// attachment reads URI[=NAME], where the URI may be a folder. Its trust is the one that is given, else the folder's.
func (a *app) attachment(word, trust string) (*messages.WorkspaceSpec, error) {
	spec := &messages.WorkspaceSpec{Uri: word}
	if i := strings.LastIndexByte(word, '='); i > 0 && !strings.ContainsAny(word[i:], "/:") && !a.isFolder(word) {
		spec.Uri, spec.Name = word[:i], word[i+1:]
	}
	switch trust {
	case "":
	case "full":
		spec.Trust = messages.Trust_FULL
	case "restricted":
		spec.Trust = messages.Trust_RESTRICTED
	default:
		e := usage("--trust %s: there is no such level", trust)
		e.hint = "one of full, restricted"
		return nil, e
	}
	dir, local := strings.CutPrefix(spec.GetUri(), workspace.LocalHost+":")
	if !local && strings.Contains(spec.GetUri(), ":") && !a.isFolder(spec.GetUri()) { // of the server, or of another machine: the runtime says which it has
		_, err := workspace.Parse(spec.GetUri(), "")
		var bad *workspace.AddressError
		if errors.As(err, &bad) {
			return nil, invalidURI(spec.GetUri(), bad)
		}
		return spec, nil
	}
	addr, _, err := a.folder(dir)
	if err != nil {
		return nil, err
	}
	spec.Uri = addr.Canonical
	if spec.GetTrust() == messages.Trust_UNSPECIFIED && a.trusted(addr) {
		spec.Trust = messages.Trust_FULL
	}
	return spec, nil
}

func (a *app) isFolder(word string) bool {
	dir := strings.TrimPrefix(word, workspace.LocalHost+":")
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(a.cwd, dir)
	}
	info, err := os.Stat(dir)
	return err == nil && info.IsDir()
}

// attachments adds the workspaces of --workspace to a new session.
func (r *runner) attachments() error {
	for _, word := range r.flags.workspaces {
		spec, err := r.a.attachment(word, "")
		if err != nil {
			return err
		}
		r.create.Workspaces = append(r.create.Workspaces, spec)
		r.a.note("troupe: attaches %s (%s)", visible(spec.GetUri()), messages.TrustName(max(spec.GetTrust(), messages.Trust_RESTRICTED)))
	}
	return nil
}
