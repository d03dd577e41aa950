package main

import (
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/workspace"
)

func newTrust(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trust DIR",
		Short: "Let agents work unasked in a folder; ls and rm keep the list",
		Long: `Let agents work unasked in a folder.

In a trusted folder every tool runs without a question, commands included, in the best sandbox
there is; and the folder's own .troupe/config.yaml counts in full. Elsewhere agents have fewer
tools, and what nobody allowed beforehand is refused. Trust holds for exactly this folder, not for those below it, and
is kept outside of it.`,
		Annotations: map[string]string{takesWords: "DIR"},
		Args:        exactly("DIR"),
		RunE: func(_ *cobra.Command, args []string) error {
			addr, real, err := a.folder(args[0])
			if err != nil {
				return err
			}
			if err := a.trustStore().Trust(addr, time.Now()); err != nil {
				return &exitError{code: exitIO, what: err.Error(), err: err}
			}
			a.note("agents may now run every tool in %s unasked; take it back with: troupe trust rm %s", visible(real), visible(args[0]))
			return a.say(addr.Canonical)
		},
	}
	cmd.AddCommand(newTrustList(a), newTrustRemove(a))
	return cmd
}

// trustedFolder is one element of `trust ls -o json`.
type trustedFolder struct {
	ID    string    `json:"id"` // the canonical address
	State string    `json:"state"`
	Since time.Time `json:"since"`
}

func newTrustList(a *app) *cobra.Command {
	return formats(&cobra.Command{
		Use:   "ls",
		Short: "List the trusted folders",
		Args:  exactly(),
		RunE: func(*cobra.Command, []string) error {
			all, err := a.trustStore().List()
			if err != nil {
				return &exitError{code: exitIO, what: err.Error(), err: err}
			}
			list, rows := []trustedFolder{}, [][]string{}
			for _, t := range all {
				list = append(list, trustedFolder{ID: t.Address, State: "full", Since: t.Since})
				rows = append(rows, []string{t.Address, "full", t.Since.UTC().Format(time.RFC3339)})
			}
			if len(list) == 0 {
				a.note("no folder is trusted; trust one with: troupe trust DIR")
			}
			return a.emit(list, func(w io.Writer) error {
				if len(rows) == 0 {
					return nil
				}
				return table(w, []string{"FOLDER", "TRUST", "SINCE"}, rows)
			})
		},
	}, "table", "json", "yaml")
}

func newTrustRemove(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "rm DIR",
		Short:   "Trust a folder no longer",
		Aliases: []string{"remove"},
		Args:    exactly("DIR"),
		RunE: func(_ *cobra.Command, args []string) error {
			addr, err := a.trustedAddress(args[0])
			if err != nil {
				return err
			}
			found, err := a.trustStore().Untrust(addr)
			if err != nil {
				return &exitError{code: exitIO, what: err.Error(), err: err}
			}
			if !found {
				return &exitError{code: exitMissing, what: fmt.Sprintf("%s is not trusted", addr.Canonical), hint: "see troupe trust ls"}
			}
			return a.say(addr.Canonical)
		},
	}
}

// trustedAddress reads what names an entry of the list: a folder, or an address as ls prints it.
// A folder that is gone can still be taken off.
func (a *app) trustedAddress(word string) (*workspace.Address, error) {
	if addr, _, err := a.folder(word); err == nil {
		return addr, nil
	}
	if addr, err := workspace.Parse(word, ""); err == nil {
		return addr, nil
	}
	if !filepath.IsAbs(word) {
		word = filepath.Join(a.cwd, word)
	}
	addr, err := workspace.Parse(workspace.LocalHost+":"+filepath.ToSlash(filepath.Clean(word)), "")
	if err != nil {
		return nil, fmt.Errorf("trust rm %q: %w", word, err)
	}
	return addr, nil
}
