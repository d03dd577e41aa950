package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/oklog/run"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/internal/telemetry"
)

// newRoot is the command tree.
func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:           "troupe",
		Short:         "Agents as supervised actors with durable conversations",
		Version:       readVersion().Version,
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.checkServer(cmd); err != nil {
				return err
			}
			return a.checkFormat(cmd)
		},
	}
	a.globalFlags(root.PersistentFlags())
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetIn(a.in)
	root.SetVersionTemplate("troupe {{.Version}}\n")
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(a.flagError)
	root.SetHelpCommand(newHelp())
	root.AddCommand(commands(a)...)
	root.AddCommand(newTopics(a)...)
	prepare(root)
	return root
}

// commands are those of the first level, in the order of the help.
func commands(a *app) []*cobra.Command {
	return []*cobra.Command{
		here(newTour(a), "a model and a folder of its own"),
		newRun(a), newChat(a),
		here(newServe(a), theStore),
		newStop(a),
		newPipeline(a),
		newToken(a),
		newList(a),
		newCalls(a),
		newApprove(a, true),
		newApprove(a, false),
		newRules(a), newAudit(a),
		newShow(a),
		newFork(a),
		newDiff(a), newApply(a),
		newCompact(a),
		newExport(a), newImport(a),
		newCancel(a),
		newRemove(a),
		newCopy(a),
		newProject(a),
		newEnv(a),
		newTree(a), newWhy(a), newTail(a), newTop(a),
		newWorkers(a),
		newInputs(a),
		newBudget(a),
		newVerify(a), newBackup(a), here(newRestore(a), theStore), here(newRepair(a), theStore), here(newRotateKey(a), theStore),
		here(newTool(a), "a folder of this machine"),
		here(newFakeModel(a), "this machine"),
		here(newChaos(a), "this machine"), here(newBench(a), "this machine"), here(newTest(a), "this machine"),
		newConfig(a),
		newAttach(a), newWorkspace(a),
		here(newTrust(a), "this user's list of folders"),
		newDoctor(a),
		newVersion(a),
		newCompletion(a),
	}
}

func (a *app) globalFlags(f *pflag.FlagSet) {
	f.StringVar(&a.flags.data, "data", "", "data `DIR` (TROUPE_DATA)")
	f.StringVar(&a.flags.config, "config", "", "configuration `FILE` instead of the searched ones")
	f.StringVar(&a.flags.server, "server", "", "`URL` of a server to talk to (TROUPE_SERVER)")
	f.StringVarP(&a.flags.format, "output", "o", "", "output `FORMAT`: table, text, json, yaml or ndjson, as the command offers")
	f.BoolVarP(&a.flags.quiet, "quiet", "q", false, "no messages besides errors")
	f.BoolVarP(&a.flags.verbose, "verbose", "v", false, "more messages")
	f.BoolVar(&a.flags.noColor, "no-color", false, "no colours (NO_COLOR)")
	f.BoolVar(&a.flags.noInput, "no-input", false, "never ask: what would be asked is denied")
}

// prepare gives every command the common manners: groups answer unknown words with a
// suggestion, and errors of a command's own work are told from errors of usage.
func prepare(cmd *cobra.Command) {
	if cmd.HasSubCommands() && cmd.RunE == nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return nil
		}
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	} else if work := cmd.RunE; work != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if err := work(cmd, args); err != nil {
				return classify(err)
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		prepare(sub)
	}
}

// unknownCommand is the error for a word that no command has.
func unknownCommand(cmd *cobra.Command, word string) error {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	e := usage("unknown command %q for %s", word, cmd.CommandPath())
	e.hint = "see " + cmd.CommandPath() + " --help"
	if near := config.Near(word, names); len(near) > 0 {
		e.hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return e
}

// flagError explains a wrong flag. A mistyped command comes first: its flags are unknown only
// because the command is.
func (a *app) flagError(cmd *cobra.Command, err error) error {
	if word, group := a.unknownWord(cmd.Root()); word != "" {
		return unknownCommand(group, word)
	}
	e := usage("%s: %s", cmd.CommandPath(), err)
	e.hint = "see " + cmd.CommandPath() + " --help"
	var missing *pflag.NotExistError
	if errors.As(err, &missing) {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		})
		if near := config.Near(missing.GetSpecifiedName(), names); len(near) > 0 {
			e.hint = "did you mean --" + strings.Join(near, " or --") + "?"
		}
	}
	return e
}

// unknownWord finds the first word of the command line that should be a command and is none.
func (a *app) unknownWord(group *cobra.Command) (string, *cobra.Command) {
	for i := 0; i < len(a.args) && group.HasSubCommands(); i++ {
		word := a.args[i]
		if strings.HasPrefix(word, "-") {
			f := group.Flags().Lookup(strings.TrimLeft(word, "-"))
			if f == nil && len(word) == 2 {
				f = group.Flags().ShorthandLookup(word[1:])
			}
			if f != nil && f.NoOptDefVal == "" {
				i++ // its value
			}
			continue
		}
		sub, _, err := group.Find([]string{word})
		if err != nil || sub == group {
			if group.Runnable() && group.Annotations[takesWords] != "" {
				return "", nil
			}
			return word, group
		}
		group = sub
	}
	return "", nil
}

// theStore is what commands work on that no server does for others.
const theStore = "a data directory of this machine"

// takesWords marks a command that has subcommands and also takes words of the user's own.
const takesWords = "words"

// execute runs one command line to its exit code. The command and the watch for signals are one
// group: a signal cancels the command's context, the command cleans up and ends. A second signal
// kills the process, as nothing listens any more, unless it is that the terminal is closed.
func execute(ctx context.Context, a *app, args []string) int {
	a.args = args
	root := newRoot(a) //nolint:contextcheck // it only builds; the commands take theirs when they run
	root.SetArgs(args)

	var g run.Group
	var result error
	work, cancel := context.WithCancel(telemetry.From(ctx, a.env["TRACEPARENT"]))
	g.Add(func() error {
		result = root.ExecuteContext(work)
		return result
	}, func(error) { cancel() })
	g.Add(a.signals(ctx))
	ended := g.Run()

	if result == nil && !errors.Is(ended, run.ErrSignal) {
		return exitDone
	}
	return a.finish(result, errors.Is(ended, run.ErrSignal))
}

// signals ends the group with the first signal to stop, unless a command takes its Ctrl-C itself.
func (a *app) signals(ctx context.Context) (execute func() error, interrupt func(error)) {
	ctx, cancel := context.WithCancel(ctx)
	came := make(chan os.Signal, 1)
	stops := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // below nohup it is: there the terminal may go
		stops = append(stops, syscall.SIGHUP)
		// Shell and kernel both tell of a terminal that goes: heard by nobody, the second word does not kill what is cleaning up.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	signal.Notify(came, stops...) // before the command begins, which may end what sends one
	return func() error {
		for {
			select {
			case s := <-came:
				if take := a.ctrlC.Load(); s == os.Interrupt && take != nil && (*take)() {
					continue
				}
				time.AfterFunc(sameWord, func() { signal.Stop(came) }) // the next one ends the process
				return run.SignalError{Signal: s}
			case <-ctx.Done():
				signal.Stop(came)
				return ctx.Err()
			}
		}
	}, func(error) { cancel() }
}

// sameWord is how long a second signal is the first one once more: timeout(1) sends each to a program and to its group, and others that start programs hand a
// Ctrl-C on which these have heard, too. Killed by it, a program would not end what it has begun.
const sameWord = 200 * time.Millisecond

// finish prints how a command failed and gives the exit code.
func (a *app) finish(result error, signalled bool) int {
	var e *exitError
	switch {
	case result == nil: // it ended well although it was asked to stop
		return exitDone
	case signalled && errors.Is(result, context.Canceled):
		e = &exitError{code: exitInterrupted, what: "interrupted"}
	case !errors.As(result, &e):
		e = usage("%s", result) // of cobra: all others are classified
	}
	e = e.without(a.secrets)
	if e.data != nil && (a.flags.format == "json" || a.flags.format == "yaml") {
		if err := a.emit(e.data, nil); err != nil {
			e = classify(err)
		}
	}
	e.render(a.err, a.styleFor(a.errTerm))
	return e.code
}

// exactly takes a fixed number of words and names the ones that are missing.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := counted(names...)(cmd, args); err != nil {
			return err
		}
		for i, arg := range args {
			if arg == "" { // a variable of a script that was not set: it names no folder, and not the one at hand
				e := usage("%s: %s is empty", cmd.CommandPath(), names[i])
				e.hint = "usage: " + cmd.UseLine()
				return e
			}
		}
		return nil
	}
}

// perhaps takes one argument, which is not empty, or none.
func perhaps(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return exactly(name)(cmd, args)
	}
}

// counted is exactly for what may also be empty.
func counted(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			e := usage("%s: %s is missing", cmd.CommandPath(), names[len(args)])
			e.hint = "usage: " + cmd.UseLine()
			return e
		case len(args) > len(names):
			e := usage("%s: unexpected %q", cmd.CommandPath(), args[len(names)])
			e.hint = "usage: " + cmd.UseLine()
			return e
		}
		return nil
	}
}

// folderFlag adds -C.
func folderFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVarP(dir, "dir", "C", "", "`DIR` to work in (default: the working directory)")
}

// say prints one line of data.
func (a *app) say(line string) error {
	if _, err := fmt.Fprintln(a.out, line); err != nil {
		return &exitError{code: exitIO, what: "write output: " + err.Error(), err: err}
	}
	return nil
}
