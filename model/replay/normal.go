package replay

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

// normal is a request in the form that is recorded and compared: what differs from run to run though nothing has changed has a name in it.
type normal struct {
	agent    string
	system   string
	tools    []tool
	messages []message
	names    *names
}

// sum is a hash. That of messages is chained, so that the one of a conversation's beginning is known with that of the whole.
type sum = [sha256.Size]byte

// patterns find what differs from run to run. They are compiled once for each player and recorder.
type patterns struct {
	id, temp, time, duration, name *regexp.Regexp
}

func newPatterns() *patterns {
	var roots []string
	for _, root := range []string{filepath.Clean(os.TempDir()), "/tmp", "/var/tmp"} {
		if root = regexp.QuoteMeta(root); !slices.Contains(roots, root) {
			roots = append(roots, root)
		}
	}
	return &patterns{
		id: messages.MadeIDs(),
		// Of what programs make up for the folders that they throw away; a name without digits is one that somebody has chosen.
		temp:     regexp.MustCompile(`(?:` + strings.Join(roots, "|") + `)[/\\][A-Za-z0-9._-]*[0-9][A-Za-z0-9._-]*`),
		time:     regexp.MustCompile(`\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?`),
		duration: regexp.MustCompile(`\b(?:\d+h)?(?:\d+m)?(?:\d+\.\d+s|\d+(?:\.\d+)?(?:ns|µs|us|ms))\b`),
		name:     regexp.MustCompile(`⟦(⟦|[a-z]+\.[0-9]{1,9}⟧)`),
	}
}

// names are what ids and places are called in one request, in the order in which they turn up: ⟦job.1⟧, ⟦folder.1⟧, ⟦temp.1⟧.
type names struct {
	*patterns
	redact  Redactor
	folders []string // longest first
	called  []string // workspaces that have the name of their folder
	of      map[string]string
	back    map[string]string
	next    map[string]int
}

// normalise gives a request its normal form.
func (p *patterns) normalise(req *model.Request, redact Redactor) *normal {
	n := &names{patterns: p, redact: redact, of: map[string]string{}, back: map[string]string{}, next: map[string]int{}}
	n.findFolders(req.Prompt.System)
	out := &normal{agent: req.Agent, names: n}
	out.system = n.loose(n.listed(n.stable(req.Prompt.System)), false)
	for i := range req.Tools {
		t := &req.Tools[i]
		out.tools = append(out.tools, tool{Name: t.Name, Schema: schema(n.clean(string(t.Schema)))})
	}
	for _, m := range ordered(req.Prompt.Messages) {
		out.messages = append(out.messages, n.message(m))
	}
	return out
}

// schema is one on one line.
func schema(s string) json.RawMessage {
	var flat bytes.Buffer
	if s == "" || json.Compact(&flat, []byte(s)) != nil {
		return json.RawMessage(`{"type":"object","properties":{}}`) // what is sent then
	}
	return flat.Bytes()
}

// ordered has the results of calls in the order of the calls, in which providers take them in any.
func ordered(ms []*messages.Message) []*messages.Message {
	out := slices.Clone(ms)
	for i := 0; i < len(out); i++ {
		if out[i].Role != messages.Assistant || len(out[i].ToolCalls) < 2 {
			continue
		}
		place := make(map[string]int, len(out[i].ToolCalls))
		for k, c := range out[i].ToolCalls {
			place[c.GetId()] = k
		}
		end := i + 1
		for end < len(out) && out[end].Role == messages.ToolRole {
			end++
		}
		slices.SortStableFunc(out[i+1:end], func(a, b *messages.Message) int { return place[a.ToolCallID] - place[b.ToolCallID] })
	}
	return out
}

// findFolders reads off the system prompt in which folders the agent works.
func (n *names) findFolders(system string) {
	line := regexp.MustCompile(`^- ([^\n]*?): [a-z]+:(?://[^/\s]*)?(/[^\n]*?) \(`)
	const heading = "# Workspaces\n"
	_, listed, found := strings.Cut(system, heading)
	for found && !line.MatchString(listed) { // what an agent is told may have such a heading, too
		_, listed, found = strings.Cut(listed, heading)
	}
	for l := range strings.Lines(listed) {
		m := line.FindStringSubmatch(l)
		if m == nil {
			break
		}
		dir := strings.TrimRight(m[2], "/")
		n.folder(dir)
		if plain, err := url.PathUnescape(dir); err == nil {
			n.folder(plain)
			dir = plain
		}
		if path.Base(dir) == m[1] {
			n.called = append(n.called, m[1])
			n.back[workspaceName(len(n.called))] = m[1]
		}
	}
	slices.SortStableFunc(n.folders, func(a, b string) int { return len(b) - len(a) })
}

func (n *names) folder(dir string) {
	if dir != "" && n.of[dir] == "" {
		n.call("folder", dir)
		n.folders = append(n.folders, dir)
	}
}

func workspaceName(i int) string { return fmt.Sprintf("⟦workspace.%d⟧", i) }

// listed is a system prompt, of stable, without the names that workspaces have of their folders.
func (n *names) listed(system string) string {
	for i, name := range n.called {
		line := regexp.MustCompile(`\n- ` + regexp.QuoteMeta(strings.ReplaceAll(name, "⟦", "⟦⟦")) + `(: [a-z]+:(?://[^/\s]*)?⟦folder\.)`)
		if at := line.FindStringSubmatchIndex(system); at != nil {
			system = system[:at[0]] + "\n- " + workspaceName(i+1) + system[at[2]:]
		}
	}
	return system
}

// arguments are those of a call, in which a workspace may be named.
func (n *names) arguments(s string) string {
	s = n.said(s)
	for i, name := range n.called {
		for _, named := range []string{`"workspace_id":"`, `"workspace_id": "`} {
			s = strings.ReplaceAll(s, named+name+`"`, named+workspaceName(i+1)+`"`)
		}
	}
	return s
}

// call gives something the next name of its kind.
func (n *names) call(kind, what string) string {
	if n.of[what] == "" {
		n.next[kind]++
		name := fmt.Sprintf("⟦%s.%d⟧", kind, n.next[kind])
		n.of[what], n.back[name] = name, what
	}
	return n.of[what]
}

// clean is a text that can be written: valid, and without secrets.
func (n *names) clean(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if n.redact != nil {
		s = n.redact.String(s)
	}
	return s
}

// said is stable for what a model says. A place below the folder for temporary files that it is the first to name is its own, and stays as it is.
func (n *names) said(s string) string {
	return n.named(s, func(place string) string {
		if n.of[place] == "" {
			n.of[place] = place
		}
		return n.of[place]
	})
}

// stable has names in place of ids and places. fill is the way back.
func (n *names) stable(s string) string {
	return n.named(s, func(place string) string { return n.call("temp", place) })
}

func (n *names) named(s string, temp func(place string) string) string {
	s = strings.ReplaceAll(n.clean(s), "⟦", "⟦⟦")
	for _, f := range n.folders {
		s = replacePath(s, f, n.of[f])
	}
	s = n.temp.ReplaceAllStringFunc(s, temp)
	return n.id.ReplaceAllStringFunc(s, func(id string) string { return n.call(id[:3], id) })
}

// inName are characters that a name of a file is made of, in ASCII.
const inName = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

// replacePath replaces a path where it ends there, or goes on with a further element. One of a single element, such as /app, begins there, too: src/app is another.
func replacePath(s, path, name string) string {
	var b strings.Builder
	short := strings.LastIndexAny(path, `/\`) <= 0
	for {
		i := strings.Index(s, path)
		if i < 0 {
			b.WriteString(s)
			return b.String()
		}
		end := i + len(path)
		b.WriteString(s[:i])
		if end < len(s) && strings.ContainsAny(s[end:end+1], inName) || short && i > 0 && strings.ContainsAny(s[i-1:i], inName+".~})") {
			b.WriteString(path)
		} else {
			b.WriteString(name)
		}
		s = s[end:]
	}
}

// fill puts what this request has in place of names. What it has not is made up, always the same: the model had made it up, too.
func (n *names) fill(s string) string {
	if !strings.Contains(s, "⟦") {
		return s
	}
	return n.name.ReplaceAllStringFunc(s, func(name string) string {
		if name == "⟦⟦" {
			return "⟦"
		}
		if what := n.back[name]; what != "" {
			return what
		}
		kind, number, _ := strings.Cut(strings.Trim(name, "⟦⟧"), ".")
		if len(kind) == 3 {
			return fmt.Sprintf("%s_%032s", kind, number)
		}
		return "/" + kind + "-" + number
	})
}

// loose has names in place of times, too, and of durations where they are asked for: there is no way back.
func (n *names) loose(s string, durations bool) string {
	s = n.time.ReplaceAllString(s, "⟦time⟧")
	if durations {
		s = n.duration.ReplaceAllString(s, "⟦duration⟧")
	}
	return s
}

func (n *names) message(m *messages.Message) message {
	switch m.Role {
	case messages.Assistant:
		a := &answer{Text: text(n.said(m.Text))}
		for _, c := range m.ToolCalls {
			a.Calls = append(a.Calls, toolCall{Name: n.clean(c.GetName()), Arguments: n.arguments(c.GetArguments())})
		}
		return a.message(n.patterns)
	case messages.ToolRole:
		return message{Role: string(m.Role), Tool: model.CallName(n.clean(m.ToolName)), Text: text(n.loose(n.stable(model.Result(m.Text)), true))}
	case messages.User:
	}
	return message{Role: string(messages.User), Text: text(n.loose(n.stable(m.Text), false))}
}

// message is how an answer, with names in it, stands in the requests that follow.
func (a *answer) message(p *patterns) message {
	n := &names{patterns: p}
	m := message{Role: string(messages.Assistant), Text: text(n.loose(string(a.Text), false))}
	for _, c := range a.Calls {
		args := model.CallArguments(c.Arguments)
		var flat bytes.Buffer
		if json.Compact(&flat, []byte(args)) == nil {
			args = flat.String()
		}
		m.Calls = append(m.Calls, toolCall{Name: model.CallName(c.Name), Arguments: n.loose(args, false)})
	}
	return m
}

// head is the hash of what stands before the messages.
func head(system string, tools []tool) sum {
	return sha256.Sum256(fmt.Appendf(nil, "%d %s %x", len(system), system, toolsSum(tools)))
}

func toolsSum(tools []tool) sum {
	var b []byte
	for _, t := range tools {
		b = fmt.Appendf(b, "%q %d %s\n", t.Name, len(t.Schema), t.Schema)
	}
	return sha256.Sum256(b)
}

// follow is the hash of messages with one more behind them.
func follow(before sum, m *message) sum {
	b := fmt.Appendf(before[:], "%s %q %q", m.Role, m.Tool, string(m.Text))
	for _, c := range m.Calls {
		b = fmt.Appendf(b, " %q %q", c.Name, c.Arguments)
	}
	return sha256.Sum256(b)
}

// chain are the hashes of the first message, the first two, and so on, after those that have the hash before.
func chain(before sum, ms []message) []sum {
	out := make([]sum, 0, len(ms))
	for i := range ms {
		before = follow(before, &ms[i])
		out = append(out, before)
	}
	return out
}

// key is the hash of a whole request but for its agent.
func key(head, messages sum) sum {
	return sha256.Sum256(append(head[:], messages[:]...))
}
