package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/workspace"
)

// addressProblem is what `workspace parse -o json` prints of a text that is no address.
type addressProblem struct {
	Code     string `json:"code"`
	URI      string `json:"uri"`
	Reason   string `json:"reason"`
	Position int    `json:"position"` // byte offset
	Detail   string `json:"detail"`
}

func newWorkspaceParse(a *app) *cobra.Command {
	return formats(&cobra.Command{
		Use:   "parse URI",
		Short: "Take an address apart; exit 65 if it is none",
		Args:  counted("URI"),
		RunE: func(_ *cobra.Command, args []string) error {
			loaded, err := a.load("")
			if err != nil {
				return err
			}
			addr, err := workspace.Parse(args[0], loaded.Config.Server.Name)
			var bad *workspace.AddressError
			if errors.As(err, &bad) {
				return invalidURI(args[0], bad)
			}
			if err != nil {
				return fmt.Errorf("parse %q: %w", args[0], err)
			}
			return a.emit(addressFields(addr), func(w io.Writer) error { return printAddress(w, addr) })
		},
	}, "text", "json", "yaml")
}

func invalidURI(uri string, bad *workspace.AddressError) error {
	hint := "see troupe workspace --help"
	if caret := caretBelow(uri, bad.Position); caret != "" {
		hint = caret + "\n" + hint
	}
	return &exitError{
		code: exitInput, what: fmt.Sprintf("%q: %s", uri, bad.Error()), hint: hint, err: bad,
		data: addressProblem{Code: bad.Code(), URI: uri, Reason: bad.Reason, Position: bad.Position, Detail: bad.Error()},
	}
}

// caretBelow shows a short text with a mark below a byte; "" where columns would not line up.
func caretBelow(text string, at int) string {
	plain := strings.IndexFunc(text, func(r rune) bool { return r < 0x20 || r > 0x7e }) < 0
	if !plain || at > len(text) || len(text) > 120 {
		return ""
	}
	return text + "\n" + strings.Repeat(" ", at) + "^"
}

// addressFields is the object of -o json. Port, ref and subdir exist for repositories, null when
// the address has none.
func addressFields(addr *workspace.Address) map[string]any {
	out := map[string]any{"id": addr.ID(), "kind": addr.Kind, "host": addr.Host, "path": addr.Path, "canonical": addr.Canonical}
	if addr.Kind != workspace.KindGit {
		return out
	}
	out["port"], out["ref"], out["subdir"] = nil, nil, nil
	if addr.Port != 0 {
		out["port"] = addr.Port
	}
	if addr.Ref != "" {
		out["ref"] = addr.Ref
	}
	if addr.Subdir != "" {
		out["subdir"] = addr.Subdir
	}
	return out
}

func printAddress(w io.Writer, addr *workspace.Address) error {
	rows := [][]string{{"host", addr.Host}, {"path", addr.Path}}
	if addr.Port != 0 {
		rows = append(rows, []string{"port", strconv.Itoa(addr.Port)})
	}
	for _, r := range [][]string{{"ref", addr.Ref}, {"subdir", addr.Subdir}, {"canonical", addr.Canonical}} {
		if r[1] != "" {
			rows = append(rows, r)
		}
	}
	return table(w, []string{"kind", string(addr.Kind)}, rows)
}
