package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/messages"
)

func newProject(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "project",
		Short: "Folders with variables for their commands: list, add, show, rm",
		Long: `Folders with variables for their commands.

A session of a folder that is a project belongs to it, and its commands have the project's variables, over those that
every command has. troupe env sets them.`,
	}
	cmd.AddCommand(newProjectList(a), newProjectAdd(a), newProjectShow(a), newProjectRemove(a))
	return cmd
}

func newProjectList(a *app) *cobra.Command {
	l := &listing{head: []string{"PROJECT", "VARIABLES", "FOLDER", "ID"}, empty: "there are no projects; make one with: troupe project add DIR"}
	return formats(&cobra.Command{
		Use:   "ls",
		Short: "List the projects",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return l.print(cmd.Context(), a, func(ctx context.Context, n node) (any, [][]string, error) {
				found, err := ask[*messages.Projects](ctx, n, &messages.ListProjects{})
				if err != nil {
					return nil, nil, err
				}
				list := found.JSON()
				var rows [][]string
				for _, p := range list {
					rows = append(rows, []string{p.Name, fmt.Sprint(len(p.Variables)), p.Path, p.ID})
				}
				return list, rows, nil
			})
		},
	}, "table", "json", "yaml")
}

func newProjectAdd(a *app) *cobra.Command {
	name := ""
	cmd := formats(&cobra.Command{
		Use:   "add DIR",
		Short: "Make a project of a folder, or rename it",
		Args:  exactly("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, real, err := a.folder(args[0])
			if err != nil {
				return err
			}
			return a.withStore(cmd.Context(), func(ctx context.Context, n node) error {
				p, err := ask[*messages.Project](ctx, n, &messages.SaveProject{Name: name, Path: real})
				if err != nil {
					return err
				}
				return a.printProject(p)
			})
		},
	}, "text", "json", "yaml")
	cmd.Flags().StringVar(&name, "name", "", "`NAME`; default: the folder's")
	return cmd
}

func newProjectShow(a *app) *cobra.Command {
	return formats(&cobra.Command{
		Use:   "show PROJECT",
		Short: "Show a project and its variables",
		Args:  exactly("PROJECT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withStore(cmd.Context(), func(ctx context.Context, n node) error {
				p, err := findProject(ctx, n, func(p *messages.Project) bool { return p.GetId() == args[0] || p.GetName() == args[0] })
				if err != nil {
					return err
				}
				if p == nil {
					return &exitError{code: exitMissing, what: "no project " + visible(args[0]), hint: "troupe project ls lists them"}
				}
				return a.printProject(p)
			})
		},
	}, "text", "json", "yaml")
}

func newProjectRemove(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "rm PROJECT",
		Short: "Forget a project and its variables; its folder stays",
		Args:  exactly("PROJECT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withStore(cmd.Context(), func(ctx context.Context, n node) error {
				_, err := ask[*messages.Ack](ctx, n, &messages.RemoveProject{Project: args[0]})
				return err
			})
		},
	}
}

func findProject(ctx context.Context, n node, is func(*messages.Project) bool) (*messages.Project, error) {
	all, err := ask[*messages.Projects](ctx, n, &messages.ListProjects{})
	if err != nil {
		return nil, err
	}
	for _, p := range all.GetProjects() {
		if is(p) {
			return p, nil
		}
	}
	return nil, nil
}

func (a *app) printProject(p *messages.Project) error {
	return a.emit(p.JSON(), func(w io.Writer) error {
		rows := [][]string{{"id", p.GetId()}, {"folder", p.GetPath()}}
		for _, v := range p.GetVariables() {
			rows = append(rows, []string{v.GetName(), variableText(v)})
		}
		return table(w, []string{"project", p.GetName()}, rows)
	})
}

func variableText(v *messages.Variable) string {
	switch {
	case v.GetCommand() != "":
		return "(from) " + v.GetCommand()
	case v.GetSecret():
		return "(secret)"
	}
	return v.GetValue()
}

// withStore works on the data directory, which it makes when there is none: in the process that serves it, else in this one, where
// no agent begins anything meanwhile.
func (a *app) withStore(ctx context.Context, work func(ctx context.Context, n node) error) error {
	loaded, err := a.load("")
	if err != nil {
		return err
	}
	h, err := a.openHouse(ctx, opening{loaded: loaded, models: newModels(loaded, a.secrets)})
	if err != nil {
		return err
	}
	err = h.during(ctx, func(ctx context.Context) error { return work(ctx, h) })
	if cerr := h.close(ctx); err == nil && cerr != nil {
		a.note("troupe: warning: %v", cerr)
	}
	return err
}

func newEnv(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "env",
		Short: "Variables of a project's commands: ls, set, unset",
		Long: `Variables of a project's commands.

They stand in the environment of every command that an agent of the project runs, over those that all commands
have; nothing of the environment of troupe itself is among them but what env.inherit names. They are kept in the data directory, encrypted when that
is. What steers the loader, shells or git (LD_*, ENV, BASH_ENV, GIT_*, PATH) is refused.`,
	}
	cmd.AddCommand(newEnvList(a), newEnvSet(a), newEnvUnset(a))
	return cmd
}

func newEnvList(a *app) *cobra.Command {
	dir := ""
	cmd := formats(&cobra.Command{
		Use:   "ls",
		Short: "List the variables of the folder's project",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.inProject(cmd.Context(), dir, false, func(_ context.Context, _ node, p *messages.Project) error {
				list := p.JSON().Variables
				return a.emit(list, func(w io.Writer) error {
					var rows [][]string
					for _, v := range p.GetVariables() {
						rows = append(rows, []string{v.GetName(), variableText(v)})
					}
					return table(w, []string{"VARIABLE", "VALUE"}, rows)
				})
			})
		},
	}, "table", "json", "yaml")
	folderFlag(cmd, &dir)
	return cmd
}

func newEnvSet(a *app) *cobra.Command {
	dir, secret, command := "", false, ""
	cmd := &cobra.Command{
		Use:   "set NAME[=VALUE]...",
		Short: "Set variables of the folder's project; a value that is not given is read from stdin",
		Long: `Set variables of the folder's project, which is made if it is none yet.

A value that is not given is read from stdin, without the line's end: other processes of this machine see what stands on a command
line. With --secret the value is taken out of everything that agents see and that is written down, and shown no more.

With --command what the command prints is the value, anew for each call of an agent that runs commands, and always a secret. It runs in the
sandbox, in the folder of the call, without network, for 10 s at most. If it fails, so does the call.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return nil
			}
			e := usage("troupe env set: NAME=VALUE is missing")
			e.hint = "usage: " + cmd.UseLine()
			return e
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			m := &messages.SetVariables{}
			var err error
			if command == "" {
				m.Set, err = a.variables(cmd.Context(), args, secret)
			} else if len(args) > 1 || secret || strings.Contains(args[0], "=") {
				err = usage("troupe env set: --command goes with one NAME, without a value and without --secret")
			} else {
				m.Set = []*messages.Variable{{Name: args[0], Command: command}}
			}
			if err != nil {
				return err
			}
			return a.inProject(cmd.Context(), dir, true, func(ctx context.Context, n node, p *messages.Project) error {
				m.Project = p.GetId()
				_, err := ask[*messages.Project](ctx, n, m)
				return err
			})
		},
	}
	folderFlag(cmd, &dir)
	cmd.Flags().BoolVar(&secret, "secret", false, "keep the value out of all texts")
	cmd.Flags().StringVar(&command, "command", "", "`COMMAND` that prints the value, for each call anew")
	return cmd
}

// variables reads the words of a command line that set variables, and from stdin the value of one that stands alone.
func (a *app) variables(ctx context.Context, words []string, secret bool) ([]*messages.Variable, error) {
	var all []*messages.Variable
	for _, word := range words {
		name, value, given := strings.Cut(word, "=")
		if !given {
			if len(words) > 1 {
				return nil, usage("troupe env set: the value of %s is missing, and stdin can give one alone", visible(name))
			}
			var err error
			if value, err = a.valueOf(ctx, name); err != nil {
				return nil, err
			}
		}
		if !utf8.ValidString(value) {
			return nil, &exitError{code: exitInput, what: "the value of " + visible(name) + " is not UTF-8", hint: "encode it, for instance with base64"}
		}
		if secret {
			a.keepSecret([]config.Secret{config.NewSecret(value)})
		}
		all = append(all, &messages.Variable{Name: name, Value: value, Secret: secret})
	}
	return all, nil
}

// valueOf reads a variable's value from stdin. Nothing there is no value: the program before the pipe has failed, or there is none.
func (a *app) valueOf(ctx context.Context, name string) (string, error) {
	if a.inTerm {
		a.note("troupe: type the value of %s, which is shown, and end with a new line and Ctrl-D", visible(name))
	}
	text, err := readStdin(ctx, a.in, "the value of "+visible(name), maxPrompt, "")
	if err == nil && text == "" {
		return "", &exitError{code: exitInput, what: "stdin holds no value for " + visible(name), hint: "an empty one is set with: troupe env set " + visible(name) + "="}
	}
	return strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r"), err
}

func newEnvUnset(a *app) *cobra.Command {
	dir := ""
	cmd := &cobra.Command{
		Use:   "unset NAME",
		Short: "Take a variable from the folder's project",
		Args:  exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.inProject(cmd.Context(), dir, false, func(ctx context.Context, n node, p *messages.Project) error {
				_, err := ask[*messages.Project](ctx, n, &messages.SetVariables{Project: p.GetId(), Unset: args})
				return err
			})
		},
	}
	folderFlag(cmd, &dir)
	return cmd
}

// inProject works on the project of a folder. One that is none becomes one, when that is wanted.
func (a *app) inProject(ctx context.Context, dir string, making bool, work func(ctx context.Context, n node, p *messages.Project) error) error {
	_, real, err := a.folder(dir)
	if err != nil {
		return err
	}
	return a.withStore(ctx, func(ctx context.Context, n node) error {
		p, err := findProject(ctx, n, func(p *messages.Project) bool { return p.GetPath() == real })
		switch {
		case err != nil:
			return err
		case p == nil && !making:
			return &exitError{code: exitMissing, what: visible(real) + " is no project", hint: "make it one with: troupe project add " + visible(real)}
		case p == nil:
			return a.inNewProject(ctx, n, real, work)
		}
		return work(ctx, n, p)
	})
}

// undoTime bounds how long a project that was made in vain is taken back, also when the command was interrupted.
const undoTime = 5 * time.Second

// inNewProject makes a project of a folder and works on it. When the work is refused, and nobody has put anything into the project meanwhile, the folder stays what it was.
func (a *app) inNewProject(ctx context.Context, n node, real string, work func(ctx context.Context, n node, p *messages.Project) error) error {
	p, err := ask[*messages.Project](ctx, n, &messages.SaveProject{Path: real})
	if err != nil {
		return err
	}
	err = work(ctx, n, p)
	switch {
	case err == nil:
		a.note("troupe: %s is the project %s now", visible(real), visible(p.GetName()))
	case !refusal(err): // it may have been done all the same
		a.note("troupe: %s is the project %s now, and what it has is not known; see it with: troupe project show %[2]s; forget it with: troupe project rm %[2]s", visible(real), visible(p.GetName()))
	default:
		a.forgetEmpty(ctx, n, p)
	}
	return err
}

// refusal says whether a command was refused, so that nothing came of it.
func refusal(err error) bool {
	f := new(messages.Failure)
	return errors.As(err, &f) && f.GetCode() != messages.CodeUnavailable && f.GetCode() != messages.CodeInternal
}

// forgetEmpty takes a project back that has nothing in it. No single command does both: what is put into it between the two is lost with it.
func (a *app) forgetEmpty(ctx context.Context, n node, p *messages.Project) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	now, err := findProject(ctx, n, func(o *messages.Project) bool { return o.GetId() == p.GetId() })
	switch {
	case err == nil && now == nil: // somebody else has
	case err == nil && len(now.GetVariables()) > 0:
		a.note("troupe: %s is the project %s now: somebody else has set variables of it meanwhile", visible(p.GetPath()), visible(now.GetName()))
	case err == nil:
		_, err = ask[*messages.Ack](ctx, n, &messages.RemoveProject{Project: p.GetId()})
	}
	if err != nil {
		a.note("troupe: warning: %s is the project %s now, though its variables were refused: %v; forget it with: troupe project rm %[2]s", visible(p.GetPath()), visible(p.GetName()), err)
	}
}
