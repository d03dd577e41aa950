package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/badger"
)

// newKey is where the key to come is.
type newKey struct{ env, file string }

func newRotateKey(a *app) *cobra.Command {
	var to newKey
	cmd := &cobra.Command{
		Use:   "rotate-key (--new-key-env NAME | --new-key-file FILE)",
		Short: "Encrypt the store with another key",
		Long: `Encrypt the store with another key.

The key that data.encryption names opens the store for the last time; change that setting afterwards. What is
encrypted are the keys of the data, so it takes no time, and nobody may use the store meanwhile. Whoever had the
old key and a copy of the directory can still read that copy.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			key, err := a.readNewKey(to)
			if err != nil {
				return err
			}
			loaded, err := a.load("")
			if err != nil {
				return err
			}
			if !dataExists(loaded) {
				return &exitError{code: exitMissing, what: "nothing was kept yet in " + visible(loaded.Config.Data.Dir)}
			}
			o, err := a.storeOptions(cmd.Context(), loaded)
			if err != nil {
				return err
			}
			err = badger.RotateKey(o, key)
			switch {
			case errors.Is(err, persistence.ErrLocked):
				e := heldError(loaded, false, err)
				e.hint = "end that process first (a server with: troupe stop)"
				return e
			case err != nil:
				return storeError(err)
			}
			return a.say("the store is encrypted with the new key: let data.encryption name it from now on")
		},
	}
	cmd.Flags().StringVar(&to.env, "new-key-env", "", "variable `NAME` that holds the new key")
	cmd.Flags().StringVar(&to.file, "new-key-file", "", "`FILE` that holds the new key")
	return cmd
}

func (a *app) readNewKey(to newKey) ([]byte, error) {
	var text, where string
	switch {
	case (to.env == "") == (to.file == ""):
		e := usage("troupe rotate-key: name the new key with one of --new-key-env and --new-key-file")
		e.hint = "make one with: head -c 32 /dev/urandom | base64"
		return nil, e
	case to.env != "":
		text, where = a.env[to.env], "the variable "+to.env
	default:
		b, err := os.ReadFile(a.path(to.file))
		if err != nil {
			return nil, fmt.Errorf("read the new key: %w", err)
		}
		text, where = string(b), to.file
	}
	key, err := config.ParseKey(config.NewSecret(strings.TrimSpace(text)))
	if err != nil {
		return nil, &exitError{code: exitConfig, what: fmt.Sprintf("%s: %v", visible(where), err), hint: "make one with: head -c 32 /dev/urandom | base64", err: err}
	}
	return key, nil
}
