package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/messages"
)

// chatCommand is what is said with a slash at the prompt of a conversation.
type chatCommand struct {
	name, args, does string
	free             bool // it needs no session
	run              func(c *chat, ctx context.Context, n node, arg string) error
}

func chatCommands() []chatCommand {
	return []chatCommand{
		{"help", "", "this list", true, func(c *chat, _ context.Context, _ node, _ string) error { return c.help() }},
		{"quit", "", "leave; so does Ctrl-D", true, func(*chat, context.Context, node, string) error { return errQuit }},
		{"new", "", "begin a new session with the next prompt", true, (*chat).startNew},
		{"model", "[NAME]", "say or change the model of the next turns", true, (*chat).model},
		{"why", "", "what the session waits for", false, (*chat).why},
		{"steer", "TEXT", "tell it to the turn that is open, also while it works: the model reads it next", false, (*chat).steer},
		{"continue", "", "finish the turn that was interrupted or waited, or show the last one again", false, (*chat).goOn},
		{"cancel", "", "cancel what is under way in the session, also of other agents, and the inputs that wait", false, (*chat).cancel},
		{"approve", "ID", "let a call run that waits for an approval", false, answering(messages.Decision_APPROVED)},
		{"deny", "ID", "refuse a call that waits for an approval", false, answering(messages.Decision_REJECTED)},
		{"compact", "", "send older turns as a summary from now on", false, (*chat).compact},
		{"fork", "[SEQ]", "go on in a copy of the session, as it was at a record", false, (*chat).fork},
		{"files", "[PATH]", "list the files that the session keeps", false, (*chat).files},
		{"sessions", "", "list the newest sessions", true, (*chat).sessions},
	}
}

// command tells whether a prompt is one. What has the form of a path is none.
func (c *chat) command(text string) (name, arg string, ok bool) {
	word, arg, _ := strings.Cut(strings.TrimSpace(text), " ")
	name, slash := strings.CutPrefix(word, "/")
	if !slash || name == "" || strings.ContainsAny(name, "/.\n") {
		return "", "", false
	}
	return name, strings.TrimSpace(arg), true
}

// obey does what a command says: in the house that stands, or else in one for this moment.
func (c *chat) obey(ctx context.Context, h *house, name, arg string) error {
	var names []string
	for _, cmd := range chatCommands() {
		names = append(names, cmd.name)
		switch {
		case cmd.name != name:
		case c.session == "" && !cmd.free:
			return usage("/%s: there is no session yet: it begins with the first prompt", name)
		case h != nil:
			return cmd.run(c, ctx, h, arg)
		case cmd.free && name != "sessions" && (c.session == "" || name != "model"):
			return cmd.run(c, ctx, nil, arg)
		default:
			return c.open(ctx, func(ctx context.Context, h *house) error { return cmd.run(c, ctx, h, arg) })
		}
	}
	e := usage("/%s: there is no such command", visible(name))
	e.hint = "/help lists them"
	if near := config.Near(name, names); len(near) > 0 {
		e.hint = "did you mean /" + strings.Join(near, " or /") + "?"
	}
	return e
}

func (c *chat) help() error {
	for _, cmd := range chatCommands() {
		if err := c.a.say(fmt.Sprintf("  %-18s %s", strings.TrimSpace("/"+cmd.name+" "+cmd.args), cmd.does)); err != nil {
			return err
		}
	}
	return nil
}

func (c *chat) startNew(context.Context, node, string) error {
	c.flags.session, c.flags.resume = "", false
	c.session, c.known = "", false
	return nil
}

func (c *chat) model(ctx context.Context, n node, arg string) error {
	switch {
	case arg == "" && c.session == "":
		return c.a.say(cmp.Or(c.flags.model, c.loaded.Config.Model))
	case arg == "":
		all, err := ask[*messages.Workers](ctx, n, &messages.ListWorkers{SessionId: c.session})
		if err != nil {
			return err
		}
		return c.a.say(visible(all.GetWorkers()[0].GetModel()))
	case c.session == "":
		if _, err := c.a.namedModel(ctx, c.loaded, c.models, arg, c.flags.agent); err != nil {
			return err
		}
		c.flags.model = arg
		return nil
	}
	return c.setModel(ctx, n, c.session, arg)
}

func (c *chat) setModel(ctx context.Context, n node, session, name string) error {
	full, err := c.a.namedModel(ctx, c.loaded, c.models, name, c.flags.agent)
	if err != nil {
		return err
	}
	m := &messages.ConfigureWorker{Model: full, By: "user"}
	v, err := ask[*messages.WorkerView](ctx, n, inSession(session, &messages.ToSession{Command: &messages.ToSession_Configure{Configure: m}}))
	if err != nil {
		return err
	}
	c.a.note("troupe: the next turns ask %s", visible(v.GetModel()))
	return nil
}

func (c *chat) why(ctx context.Context, n node, _ string) error {
	j, err := why(ctx, n, c.session)
	if err != nil {
		return err
	}
	return c.a.say(j.Text)
}

func (c *chat) goOn(context.Context, node, string) error {
	c.pending = c.runner(nil)
	return nil
}

func (c *chat) cancel(ctx context.Context, n node, _ string) error {
	return c.a.cancel(ctx, n, c.session, "", &cancelFlags{})
}

func answering(d messages.Decision_Value) func(c *chat, ctx context.Context, n node, arg string) error {
	return func(c *chat, ctx context.Context, n node, arg string) error {
		all, err := ask[*messages.Approvals](ctx, n, &messages.ListApprovals{SessionId: c.session})
		if err != nil {
			return err
		}
		var known []string
		for _, v := range all.GetApprovals() {
			known = append(known, v.GetApprovalId())
			if v.GetApprovalId() != arg {
				continue
			}
			if _, err := n.Ask(ctx, &messages.ResolveApproval{ApprovalId: arg, ArgsHash: v.GetArgsHash(), Decision: d, By: "user"}); err != nil {
				return err
			}
			c.pending = c.runner(nil)
			return nil
		}
		e := &exitError{code: exitMissing, what: "there is no approval " + visible(strconv.Quote(arg)) + " in this session", hint: "nothing waits for one"}
		if len(known) > 0 {
			e.hint = "these wait for an answer: " + strings.Join(known, ", ")
		}
		return e
	}
}

func (c *chat) compact(ctx context.Context, n node, _ string) error {
	done, err := ask[*messages.Compacted](ctx, n, inSession(c.session, &messages.ToSession{Command: &messages.ToSession_Compact{Compact: &messages.CompactHistory{By: "user"}}}))
	if err != nil {
		return err
	}
	return c.a.tellCompacted(c.session, done)
}

func (c *chat) fork(ctx context.Context, n node, arg string) error {
	m := &messages.ForkSession{SessionId: c.session}
	if arg != "" {
		var err error
		if m.At, err = recordNumber(arg); err != nil {
			return err
		}
	}
	f, err := ask[*messages.Forked](ctx, n, m)
	if err != nil {
		return err
	}
	j := f.JSON()
	c.a.tellForked(&j)
	c.session = j.ID
	return nil
}

func (c *chat) files(ctx context.Context, n node, arg string) error {
	found, err := ask[*messages.Files](ctx, n, inSession(c.session, &messages.ToSession{Command: &messages.ToSession_UseFile{UseFile: &messages.UseFile{Path: arg}}}))
	if err != nil {
		return err
	}
	if len(found.GetEntries()) == 0 {
		c.a.note("troupe: the session keeps no files there")
	}
	for _, e := range found.GetEntries() {
		if err := c.a.say(fmt.Sprintf("%10d  %s", e.GetSize(), visible(e.GetPath()))); err != nil {
			return err
		}
	}
	return nil
}

// newest is how many sessions a conversation lists.
const newest = 10

func (c *chat) sessions(ctx context.Context, n node, _ string) error {
	found, err := ask[*messages.Sessions](ctx, n, &messages.ListSessions{Limit: newest})
	if err != nil {
		return err
	}
	var rows [][]string
	for _, s := range found.JSON() {
		rows = append(rows, []string{s.ID, s.State, s.UpdatedAt, s.Model, oneLine(s.Title, 40)})
	}
	return table(c.a.out, []string{"SESSION", "STATE", "UPDATED", "MODEL", "TITLE"}, rows)
}
