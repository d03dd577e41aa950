package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/messages"
)

func newWorkspaceFields(a *app) *cobra.Command {
	schema := ""
	cmd := formats(&cobra.Command{
		Use:   "fields SESSION [NAME]",
		Short: "Show the fields of a session's workspace, or declare them",
		Long: `Show the fields of a session's workspace (NAME; by default the primary one), or declare them with --schema.

Fields are what a workspace holds besides its files, such as the status of the work. Agents read them in their prompt, and
set those that are editable. FILE is a JSON schema of an object: its properties are the fields, "x-editable": true marks those that may be set. They
are the fields of every session that works in the same folder.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				return nil
			}
			return exactly("SESSION")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			if len(args) > 1 {
				name = args[1]
			}
			m := &messages.ToSession{Command: &messages.ToSession_ReadFields{ReadFields: &messages.ReadFields{Workspace: name}}}
			if schema != "" {
				text, err := schemaFile(a.path(schema))
				if err != nil {
					return err
				}
				m.Command = &messages.ToSession_DeclareFields{DeclareFields: &messages.DeclareFields{Workspace: name, Schema: text, By: "user"}}
			}
			return a.onSession(cmd.Context(), args[0], func(ctx context.Context, n node) error {
				v, err := ask[*messages.FieldsView](ctx, n, inSession(args[0], m))
				if err != nil {
					return err
				}
				return a.printFields(v)
			})
		},
	}, "table", "json", "yaml")
	cmd.Flags().StringVar(&schema, "schema", "", "declare the fields of a JSON schema in `FILE`")
	return cmd
}

// maxSchemaFile is what is read of a schema, in bytes: more than any that is taken.
const maxSchemaFile = 1 << 20

func schemaFile(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", fmt.Errorf("read the schema: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSchemaFile))
	if err != nil {
		return "", fmt.Errorf("read the schema: %w", err)
	}
	return string(b), nil
}

func (a *app) printFields(v *messages.FieldsView) error {
	j := v.JSON()
	if len(j.Fields) == 0 {
		a.note("troupe: %s has no fields; troupe workspace fields SESSION --schema FILE declares some", visible(j.Workspace))
	}
	return a.emit(j, func(w io.Writer) error {
		if len(j.Fields) == 0 {
			return nil
		}
		var rows [][]string
		for _, f := range j.Fields {
			rows = append(rows, []string{f.Name, fieldKind(f), oneLine(string(f.Value), 200), oneLine(f.Description, 80)})
		}
		return table(w, []string{"FIELD", "KIND", "VALUE", "DESCRIPTION"}, rows)
	})
}

func fieldKind(f messages.FieldJSON) string {
	switch {
	case f.Derived:
		return "derived"
	case f.Editable:
		return "editable"
	}
	return "read-only"
}

func newWorkspaceSet(a *app) *cobra.Command {
	name, rev := "", ""
	cmd := formats(&cobra.Command{
		Use:   "set SESSION FIELD VALUE",
		Short: "Set a field of a session's workspace, also while agents work",
		Long: `Set a field of a session's workspace, also while agents work.

VALUE is JSON; what is no JSON is taken as text, so that "done" needs no quotes of its own. null clears the field: to
its default, or to unset. Agents see the new value in their next request.`,
		Args: exactly("SESSION", "FIELD", "VALUE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			set := &messages.SetField{Workspace: name, Field: args[1], Value: args[2], By: "user", ExecId: messages.NewID(messages.ExecPrefix)}
			if !json.Valid([]byte(args[2])) {
				b, err := json.Marshal(args[2])
				if err != nil {
					return err
				}
				set.Value = string(b)
			}
			if rev != "" {
				n, err := strconv.ParseUint(rev, 10, 64)
				if err != nil || n == 0 {
					return usage("--rev %s: it is no revision", rev)
				}
				set.IfRev = n
			}
			return a.onSession(cmd.Context(), args[0], func(ctx context.Context, n node) error {
				done, err := ask[*messages.FieldUpdated](ctx, n, inSession(args[0], &messages.ToSession{Command: &messages.ToSession_SetField{SetField: set}}))
				if err != nil {
					return err
				}
				return a.printEdit(done)
			})
		},
	}, "text", "json", "yaml")
	cmd.Flags().StringVar(&name, "workspace", "", "`NAME` of the workspace (default: the primary one)")
	cmd.Flags().StringVar(&rev, "rev", "", "only if the fields are still of `REVISION`")
	return cmd
}

func (a *app) printEdit(done *messages.FieldUpdated) error {
	j := done.JSON()
	return a.emit(j, func(w io.Writer) error {
		lines := fmt.Sprintf("%s: %s -> %s (revision %d)\n", j.Field, visible(string(j.Old)), visible(string(j.New)), j.Rev)
		for _, d := range j.Derived {
			lines += fmt.Sprintf("%s: %s -> %s\n", d.Field, visible(string(d.Old)), visible(string(d.New)))
		}
		_, err := io.WriteString(w, lines)
		return err
	})
}
