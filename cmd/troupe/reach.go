package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/client"
	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/messages"
)

// hereKey is the annotation of commands that work on this machine alone; its value says on what.
const hereKey = "here"

// here marks a command, and all below it, as one of this machine: --server is refused, so that nobody takes what it does for something that
// happened at the server. A server of the environment or of a file is meant for the other commands, and counts for nothing here.
func here(cmd *cobra.Command, on string) *cobra.Command {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[hereKey] = on
	for _, sub := range cmd.Commands() {
		here(sub, on)
	}
	return cmd
}

// checkServer refuses --server where it would count for nothing.
func (a *app) checkServer(cmd *cobra.Command) error {
	on := cmd.Annotations[hereKey]
	if on == "" || a.flags.server == "" {
		return nil
	}
	e := usage("--server %s: %s works on %s, and on no server", visible(a.flags.server), cmd.CommandPath(), on)
	e.hint = "leave --server out, or run it on the server's machine"
	return e
}

// withHolder asks the server, or the process that works on the data directory. Where there is none, there is nothing live to ask.
func (a *app) withHolder(ctx context.Context, work func(ctx context.Context, n node) error) error {
	loaded, err := a.load("")
	if err != nil {
		return err
	}
	h, err := a.holding(ctx, loaded)
	if err != nil {
		return err
	}
	err = h.during(ctx, func(ctx context.Context) error { return work(ctx, h) })
	if cerr := h.close(ctx); err == nil && cerr != nil {
		a.note("troupe: warning: %v", cerr)
	}
	return err
}

// holding is the server, or the holder of the data directory.
func (a *app) holding(ctx context.Context, loaded *config.Loaded) (*house, error) {
	if loaded.Config.Server.URL != "" {
		return a.remoteHouse(ctx, loaded)
	}
	dir := loaded.Config.Data.Dir
	h, err := attach(ctx, dir)
	if errors.Is(err, client.ErrNoHolder) {
		return nil, &exitError{
			code: exitUnreachable, what: fmt.Sprintf("no process works on the data directory %s (%s)", visible(dir), loaded.Origin("data.dir")), err: err,
			hint: "actors live in one: begin a turn with troupe run \"...\" and look again; troupe ls sessions shows what is stored",
		}
	}
	return h, err
}

// serverThere is the check of doctor that the server which commands go to answers, and takes the token.
func serverThere(ctx context.Context, p *patient) finding {
	if p.loaded == nil {
		return skipped()
	}
	where := fmt.Sprintf("%s (%s)", p.loaded.Config.Server.URL, p.loaded.Origin("server.url"))
	c, err := p.app.connect(ctx, p.loaded)
	if err != nil {
		return failedAt(err)
	}
	defer func() { _ = c.Close() }() // it has nothing that could be lost
	who, err := ask[*messages.Holder](ctx, c, &messages.Hello{})
	if err == nil {
		_, err = ask[*messages.Sessions](ctx, c, &messages.ListSessions{Limit: 1})
	}
	var refused *messages.Failure
	switch {
	case errors.As(err, &refused):
		return finding{Level: levelFail, Message: fmt.Sprintf("%s refuses: %s", where, refused.GetMessage()), Fix: "give a token that counts there with TROUPE_TOKEN; who runs the server makes one with: troupe token create NAME --scope read,prompt,approve"}
	case err != nil:
		return finding{Level: levelFail, Message: fmt.Sprintf("%s: %v", where, err), Fix: "look at the server with: troupe doctor, on its machine"}
	}
	return finding{Level: levelOK, Message: fmt.Sprintf("%s answers (process %d, troupe %s); commands talk to it", where, who.GetPid(), who.GetVersion())}
}

// failedAt is the finding of an error that comes with its way out.
func failedAt(err error) finding {
	f := finding{Level: levelFail, Message: err.Error(), Fix: "start it with: troupe serve"}
	if e := new(exitError); errors.As(err, &e) && e.hint != "" {
		f.Message, f.Fix = e.what, e.hint
	}
	return f
}
