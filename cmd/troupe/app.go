package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/term"

	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

// app is what every command works with. Data goes to out, messages for people go to err.
type app struct {
	in  io.Reader
	out io.Writer
	err io.Writer
	env config.Env
	cwd string // absolute; "" if it no longer exists

	inTerm, outTerm, errTerm bool // which streams are terminals: a person can be asked only on all

	color   string           // ui.color, once a configuration is read
	secrets *config.Redactor // what is known of them

	flags globalFlags
	args  []string // as given, for errors

	ctrlC atomic.Pointer[func() bool] // takes a Ctrl-C, and says whether it did; nil: it ends the command
}

// globalFlags are the flags that every command has.
type globalFlags struct {
	data, config, server, listen, format string
	quiet, verbose                       bool
	noColor, noInput                     bool
}

// processApp is the app of this process.
func processApp() *app {
	cwd, err := os.Getwd()
	if err != nil {
		cwd = "" // a removed folder: commands that need one say so
	}
	isTerm := func(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
	env := config.Environ(os.Environ())
	a := &app{
		in: os.Stdin, out: os.Stdout, err: os.Stderr, env: env, cwd: cwd, secrets: config.NewRedactor(),
		inTerm: isTerm(os.Stdin), outTerm: isTerm(os.Stdout), errTerm: isTerm(os.Stderr),
	}
	a.keepSecret(config.EnvSecrets(env))
	return a
}

// keepSecret takes secrets out of what this process says from now on, and out of what the kernel shows
// of it. Where the latter is not possible, the sandbox still hides the process.
func (a *app) keepSecret(secrets []config.Secret) {
	a.secrets.Learn(secrets...)
	_ = blankEnviron(secrets...)
}

// note prints a message for people, unless -q.
func (a *app) note(format string, args ...any) {
	if !a.flags.quiet {
		a.fault(format, args...)
	}
}

// fault tells people why a command does not end well; also with --quiet.
func (a *app) fault(format string, args ...any) {
	_, _ = fmt.Fprintf(a.err, format+"\n", args...) // nobody is left to be told
}

// folder gives the folder that -C names, links resolved, and its address; "" is the working directory.
func (a *app) folder(dir string) (*workspace.Address, string, error) {
	if dir == "" {
		dir = a.cwd
	}
	if dir == "" {
		return nil, "", &exitError{code: exitMissing, what: "the working directory no longer exists", hint: "change to a folder that exists, or name one"}
	}
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(a.cwd, dir)
	}
	addr, real, err := workspace.Local(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", &exitError{code: exitMissing, what: fmt.Sprintf("folder %s does not exist", dir), hint: "make it, or name another one", err: err}
	}
	if info, serr := os.Stat(dir); serr == nil && !info.IsDir() {
		return nil, "", &exitError{code: exitMissing, what: dir + " is no folder", hint: "name the folder that it is in", err: err}
	}
	if err != nil {
		return nil, "", fmt.Errorf("use folder %s: %w", dir, err)
	}
	return addr, real, nil
}

// trustStore is where the folders are kept that this user trusts. It lies below the XDG data
// directory whatever --data says: a data directory inside a stranger's folder must not bring its
// own list along.
func (a *app) trustStore() *workspace.TrustStore {
	return workspace.NewTrustStore(filepath.Join(config.Dirs(a.env).Data, "trust.json"))
}

// trusted tells whether a person trusts the folder. A list that cannot be read trusts nobody.
func (a *app) trusted(addr *workspace.Address) bool {
	level, err := a.trustStore().Level(addr)
	if err != nil {
		a.note("troupe: %v; no folder is trusted", err)
	}
	return level == messages.Trust_FULL
}

// load reads the configuration for work in a folder ("": the working directory) and prints its
// warnings. The folder's own file counts fully only if the folder is trusted.
func (a *app) load(dir string) (*config.Loaded, error) {
	o, addr, err := a.loadOptions(dir)
	if err != nil {
		return nil, err
	}
	loaded, err := a.read(o, addr)
	if err != nil {
		return nil, err
	}
	a.keepSecret(loaded.Secrets())
	a.color = loaded.Config.UI.Color
	if a.flags.verbose {
		for _, f := range loaded.Files {
			a.note("troupe: read configuration %s", visible(f))
		}
	}
	for _, w := range loaded.Warnings {
		a.note("troupe: warning: %s", w)
	}
	return loaded, nil
}

// read reads the configuration, and once more when the folder's own file counts fully.
func (a *app) read(o config.Options, addr *workspace.Address) (*config.Loaded, error) {
	loaded, err := config.Load(o)
	if err != nil {
		return nil, err
	}
	project := filepath.Join(o.Dir, filepath.FromSlash(config.ProjectFile))
	if o.Dir != "" && slices.Contains(loaded.Files, project) && a.trusted(addr) {
		o.Trusted = true
		return config.Load(o)
	}
	return loaded, nil
}

// rulesOf gives the standing rules for sessions in a folder, as the configuration says now. A folder that
// is gone has no file of its own.
func (a *app) rulesOf(folder string) ([]string, error) {
	o := config.Options{Env: a.env, File: a.flags.config, Cwd: a.cwd}
	var addr *workspace.Address
	if _, dir, local := strings.Cut(folder, "local:"); local {
		var real string
		var err error
		addr, real, err = workspace.Local(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		o.Dir = real
	}
	loaded, err := a.read(o, addr)
	if err != nil {
		return nil, err
	}
	return configRules(loaded)
}

// loadOptions gathers what config.Load needs. Without -C, a working directory that cannot be a
// workspace only means that there is no folder's file.
func (a *app) loadOptions(dir string) (config.Options, *workspace.Address, error) {
	o := config.Options{Env: a.env, File: a.flags.config, Cwd: a.cwd}
	addr, real, err := a.folder(dir)
	if err != nil && dir != "" {
		return o, nil, err
	}
	o.Dir = real
	for _, f := range []config.Flag{
		{Path: "data.dir", Value: a.flags.data, Name: "--data"},
		{Path: "server.url", Value: a.flags.server, Name: "--server"},
		{Path: "server.listen", Value: a.flags.listen, Name: "--listen"},
	} {
		if f.Value != "" {
			o.Flags = append(o.Flags, f)
		}
	}
	return o, addr, nil
}
