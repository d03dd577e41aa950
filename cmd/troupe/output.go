package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
)

// formatsKey is the annotation that lists the formats of a command, the default first.
const formatsKey = "formats"

// formats declares which values of -o a command takes. Commands without it take none.
func formats(cmd *cobra.Command, names ...string) *cobra.Command {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[formatsKey] = strings.Join(names, ",")
	return cmd
}

// checkFormat settles a.flags.format before the command runs.
func (a *app) checkFormat(cmd *cobra.Command) error {
	declared := cmd.Annotations[formatsKey]
	known := strings.Split(declared, ",")
	if a.flags.format == "" {
		a.flags.format = known[0]
		return nil
	}
	for _, k := range known {
		if declared != "" && k == a.flags.format {
			return nil
		}
	}
	if declared == "" {
		return usage("-o %s: %s has only one form of output", a.flags.format, cmd.CommandPath())
	}
	return &exitError{
		code: exitUsage, what: fmt.Sprintf("-o %s: %s does not print this format", a.flags.format, cmd.CommandPath()),
		hint: "one of " + strings.Join(known, ", "),
	}
}

// emit prints a value in the format that was asked for; text prints the form for people.
func (a *app) emit(v any, text func(w io.Writer) error) error {
	var out bytes.Buffer
	var err error
	switch a.flags.format {
	case "json":
		err = writeJSON(&out, v)
	case "yaml":
		err = writeYAML(&out, v)
	default:
		err = text(&out)
	}
	if err != nil {
		return fmt.Errorf("format output: %w", err)
	}
	if _, err := a.out.Write(out.Bytes()); err != nil {
		return &exitError{code: exitIO, what: "write output: " + err.Error(), err: err}
	}
	return nil
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(plain(v))
}

// writeYAML goes by way of JSON, so that the names of fields are the same in both.
func writeYAML(w io.Writer, v any) error {
	if ordered, ok := v.(yaml.MapSlice); ok {
		return yaml.NewEncoder(w, yaml.IndentSequence(true)).Encode(ordered)
	}
	raw, err := json.Marshal(plain(v))
	if err != nil {
		return err
	}
	out, err := yaml.JSONToYAML(raw)
	if err != nil {
		return err
	}
	_, err = w.Write(out)
	return err
}

// plain makes maps of ordered maps, which encoding/json does not know.
func plain(v any) any {
	switch v := v.(type) {
	case yaml.MapSlice:
		out := make(map[string]any, len(v))
		for _, item := range v {
			out[fmt.Sprint(item.Key)] = plain(item.Value)
		}
		return out
	case []yaml.MapSlice:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = plain(item)
		}
		return out
	}
	return v
}

// table prints rows below their heads, in columns. Cells come from everywhere: what a terminal
// could obey is made visible.
func table(w io.Writer, head []string, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{head}, rows...) {
		cells := make([]string, len(row))
		for i, c := range row {
			cells[i] = strings.ReplaceAll(visible(strings.ReplaceAll(c, "\n", " ")), "\t", " ")
		}
		if _, err := fmt.Fprintln(tw, strings.Join(cells, "\t")); err != nil {
			return err
		}
	}
	return tw.Flush()
}

// visible replaces what a terminal could obey, or what reorders text, by a mark; line ends and
// tabs stay.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
			return '\uFFFD'
		}
		return r
	}, s)
}

// style colours words on a terminal. The zero style colours nothing.
type style struct{ on bool }

// styleFor is the style of a stream: none with NO_COLOR or --no-color, else what ui.color says, else
// colours on a terminal.
func (a *app) styleFor(terminal bool) style {
	if a.env["NO_COLOR"] != "" || a.flags.noColor || a.color == "never" {
		return style{}
	}
	return style{on: a.color == "always" || terminal && a.env["TERM"] != "dumb"}
}

func (s style) paint(code, text string) string {
	if !s.on {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s style) bad(text string) string  { return s.paint("1;31", text) }
func (s style) warn(text string) string { return s.paint("33", text) }
func (s style) good(text string) string { return s.paint("32", text) }
