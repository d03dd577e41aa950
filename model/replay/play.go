package replay

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/troupe-dev/troupe/internal/linediff"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/model/canned"
)

// call is a recorded call.
type call struct {
	doc      document
	at, line int // in the file
	life     int // which opening of the file wrote it
	system   string
	tools    []tool
	before   *call // whose messages and answer stand before its own
	head     sum
	asked    sum  // of the messages of the request
	answered sum  // of those and the answer
	count    int  // messages of the request
	replaced bool // it is not played: what came later stands for it
}

// settle finds what a call has from those before it.
func (c *call) settle(r *Recording) {
	var base *call
	if n := c.doc.After; n > 0 {
		c.before = r.calls[n-1]
		base = c.before
		c.asked, c.count = c.before.answered, c.before.count+1
	}
	if n := c.doc.Setup; n > 0 {
		base = r.calls[n-1]
	}
	if base != nil {
		c.system, c.tools = base.system, base.tools
	}
	if c.doc.System != nil {
		c.system = string(*c.doc.System)
	}
	if c.doc.Tools != nil {
		c.tools = *c.doc.Tools
		for i := range c.tools {
			c.tools[i].Schema = schema(string(c.tools[i].Schema))
		}
	}
	c.head = head(c.system, c.tools)
	for i := range c.doc.Messages {
		c.asked = follow(c.asked, &c.doc.Messages[i])
	}
	c.count += len(c.doc.Messages)
	if a := c.doc.Answer; a != nil {
		m := a.message(r.patterns)
		c.answered = follow(c.asked, &m)
	}
}

// messages are all of the request, the first first.
func (c *call) messages(p *patterns) []message {
	out := make([]message, c.count)
	at := c.count
	for ; c != nil; c = c.before {
		at -= len(c.doc.Messages)
		copy(out[at:], c.doc.Messages)
		if c.before != nil {
			at--
			out[at] = c.before.doc.Answer.message(p)
		}
	}
	return out
}

// index makes the table of calls. What a later opening of the file has recorded replaces the newest of what earlier ones have for the same request:
// who recorded was killed before that answer was of use, and asked again. A failure after which another model was asked the same is replaced by that one's
// answer: who plays both has no other to go to.
func (r *Recording) index() {
	r.byKey = make(map[sum][]*call, len(r.calls))
	since := make(map[sum]*later)
	for _, c := range slices.Backward(r.calls) {
		k := key(head(c.doc.Agent, nil), key(c.head, c.asked))
		if since[k] == nil {
			since[k] = &later{life: c.life}
		}
		c.replaced = since[k].replaces(c)
	}
	for _, c := range r.calls {
		if k := key(c.head, c.asked); !c.replaced {
			r.byKey[k] = append(r.byKey[k], c)
		}
	}
}

// later are the calls of one request behind one of them.
type later struct {
	life, here, newer int // the opening of the file that is looked at, and how many calls it and those after it have
	models            []string
}

// replaces says whether they replace a call, and takes it in. Calls come from the last to the first.
func (l *later) replaces(c *call) bool {
	if l.life != c.life {
		l.life, l.newer, l.here = c.life, l.newer+l.here, 0
	}
	again := l.here < l.newer
	stood := c.doc.Error != nil && slices.ContainsFunc(l.models, func(m string) bool { return m != c.doc.Model })
	l.here++
	if len(l.models) < 2 && !slices.Contains(l.models, c.doc.Model) { // of two, one is another
		l.models = append(l.models, c.doc.Model)
	}
	return again || stood
}

// player is a recording being played.
type player struct {
	*patterns
	of     *Recording
	redact Redactor

	mu    sync.Mutex
	given map[*call]int // how often
}

func (r *Recording) player(o Options) *player {
	return &player{patterns: r.patterns, of: r, redact: o.Redact, given: make(map[*call]int)}
}

// Title implements canned.Source.
func (p *player) Title() string { return p.of.Name }

// Answer implements canned.Source.
func (p *player) Answer(req *model.Request) (*canned.Answer, error) {
	n := p.normalise(req, p.redact)
	c := p.find(n)
	if c == nil {
		return nil, p.unmatched(n)
	}
	a := &canned.Answer{Cut: -1, Unheard: func() { p.giveBack(c) }}
	if e := c.doc.Error; e != nil {
		a.Fail = &canned.Failure{Class: e.Class, Status: e.Status, Message: e.Message}
		if a.Fail.Status == 0 {
			a.Fail.Status, _ = canned.StatusOf(e.Class)
		}
		return a, nil
	}
	said := c.doc.Answer
	a.Text, a.Reasoning, a.Finish = n.names.fill(string(said.Text)), n.names.fill(string(said.Reasoning)), said.Finish
	for _, tc := range said.Calls {
		a.Calls = append(a.Calls, &messages.ToolCall{Id: tc.ID, Name: tc.Name, Arguments: n.names.fill(tc.Arguments)})
	}
	a.Usage = &messages.Usage{}
	if u := said.Usage; u != nil {
		a.Usage = &messages.Usage{InputTokens: u.Input, OutputTokens: u.Output, CachedTokens: u.Cached, ReasoningTokens: u.Reasoning}
	}
	return a, nil
}

// find takes the next answer to a request: those that were recorded, in their order, and then the last of them again. A request is made again
// when its answer was lost on the way, and then gets the same.
func (p *player) find(n *normal) *call {
	ms := chain(sum{}, n.messages)
	var asked sum
	if len(ms) > 0 {
		asked = ms[len(ms)-1]
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var last *call
	for _, c := range p.of.byKey[key(head(n.system, n.tools), asked)] {
		if !sameAgent(n.agent, c.doc.Agent) {
			continue
		}
		if last = c; p.given[c] == 0 {
			break
		}
	}
	if last != nil {
		p.given[last]++
	}
	return last
}

// sameAgent says whether a recorded request is of who asks. Clients other than troupe do not say who asks.
func sameAgent(a, b string) bool { return a == b || a == "" || b == "" }

func (p *player) giveBack(c *call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.given[c]--
}

func (p *player) unplayed() (out []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.of.calls {
		if p.given[c] == 0 && !c.replaced {
			out = append(out, fmt.Sprintf("%s:%d: call %d%s was never asked for", p.of.file, c.line, c.doc.Call, of(c.doc.Agent)))
		}
	}
	return out
}

func of(agent string) string {
	if agent == "" {
		return ""
	}
	return fmt.Sprintf(" of agent %q", agent)
}

// unmatched is the error for a request that was not recorded. Its hint shows how it differs from the nearest that was.
func (p *player) unmatched(n *normal) *model.Error {
	steps := 0
	for _, m := range n.messages {
		if m.Role == string(messages.Assistant) {
			steps++
		}
	}
	what := fmt.Sprintf("the recording %s has no such request%s as this one, which %d answers went before", p.of.file, of(n.agent), steps)
	near, torn := p.nearest(n), ""
	if p.of.Torn != "" {
		torn = p.of.Torn + "\n"
	}
	if near == nil {
		return &model.Error{Class: model.Unmatched, Message: what + ": it has no call at all", Hint: torn + recordAgain}
	}
	diff := linediff.Diff(lines(near.doc.Agent, near.system, near.tools, near.messages(p.patterns)), lines(n.agent, n.system, n.tools, n.messages))
	return &model.Error{
		Class:   model.Unmatched,
		Message: fmt.Sprintf("%s; the nearest is call %d, at %s:%d", what, near.doc.Call, p.of.file, near.line),
		Hint: "- recorded, + asked for now:\n" + bounded(diff) + torn +
			"what was asked has changed since; if it should have, " + recordAgain + " and the model that was asked before",
	}
}

// nearest is the recorded call that a request has most in common with: the agent, the first messages, what stands before them, and how many there are.
func (p *player) nearest(n *normal) *call {
	prefix := chain(sum{}, n.messages)
	head := head(n.system, n.tools)
	var best *call
	var most []int
	for _, c := range p.of.calls {
		score := []int{0, c.shared(prefix), 0, -max(c.count-len(prefix), len(prefix)-c.count), 0}
		if sameAgent(n.agent, c.doc.Agent) {
			score[0] = 1
		}
		if c.head == head {
			score[2] = 1
		}
		p.mu.Lock()
		if p.given[c] == 0 {
			score[4] = 1
		}
		p.mu.Unlock()
		if best == nil || slices.CompareFunc(score, most, cmp.Compare[int]) > 0 {
			best, most = c, score
		}
	}
	return best
}

// shared is how many first messages a call shares with those of which the hashes are given.
func (c *call) shared(prefix []sum) int {
	for ; c != nil; c = c.before {
		begin, count := sum{}, 0
		if c.before != nil {
			begin, count = c.before.answered, c.before.count+1
		}
		if count > 0 && (count > len(prefix) || prefix[count-1] != begin) {
			continue // it differs before
		}
		for i, s := range chain(begin, c.doc.Messages) {
			if count+i >= len(prefix) || prefix[count+i] != s {
				return count + i
			}
		}
		return c.count
	}
	return 0
}

// lines shows a request.
func lines(agent, system string, tools []tool, ms []message) []string {
	var out []string
	add := func(title, body string) {
		out = append(out, title)
		if body != "" {
			for l := range strings.SplitSeq(body, "\n") {
				out = append(out, "  "+l)
			}
		}
	}
	if agent != "" {
		out = append(out, "agent: "+agent)
	}
	add("system:", system)
	for _, t := range tools {
		out = append(out, "tool "+t.Name+": "+string(t.Schema))
	}
	for _, m := range ms {
		title := m.Role
		if m.Tool != "" {
			title += " " + m.Tool
		}
		add(title+":", string(m.Text))
		for _, c := range m.Calls {
			out = append(out, "  call "+c.Name+" "+c.Arguments)
		}
	}
	return out
}

// Bounds of a difference as it is shown: it goes into a journal.
const (
	maxDiffLines = 60
	maxDiffLine  = 240 // bytes
)

// bounded cuts what is too long to be read.
func bounded(diff string) string {
	var b strings.Builder
	n := 0
	for l := range strings.Lines(diff) {
		if n++; n > maxDiffLines {
			b.WriteString("  ... and more\n")
			break
		}
		if l = strings.TrimSuffix(l, "\n"); len(l) > maxDiffLine {
			l = strings.ToValidUTF8(l[:maxDiffLine], "") + " ..."
		}
		b.WriteString(l + "\n")
	}
	return b.String()
}
