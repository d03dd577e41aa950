package xmltools

import (
	"strings"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

// maxEnds bounds how often the closing tag of a call may turn up in it before the call is given up: each time all of it
// is read anew.
const maxEnds = 64

// Reader finds the calls in the text of an answer. It stands between a model's events and who wants them: text
// goes on as soon as it is sure that no call begins with it.
type Reader struct {
	emit  func(*model.Event) bool
	tools map[string]*schema
	tags  []string // what a call may begin with

	line   string // the line under way, as far as it is held back: it may become a call or a fence
	within bool   // in the middle of a line that is neither
	blank  bool   // white space does not count: it stands behind a call
	fence  string // that of the code block under way; ""

	tool   string // of the call under way; ""
	body   strings.Builder
	seen   int // of the body, searched for the closing tag
	ends   int // closing tags seen
	calls  int
	native map[int]int // positions of calls that the model made by itself
}

// NewReader makes a Reader for one answer.
func NewReader(tools []model.ToolDef, emit func(*model.Event) bool) *Reader {
	r := &Reader{emit: emit, tools: make(map[string]*schema, len(tools))}
	for _, t := range tools {
		r.tools[t.Name] = readSchema(t.Schema)
		r.tags = append(r.tags, "<"+t.Name+">")
	}
	return r
}

// Take is the emit function of the model below; false when the caller stopped.
func (r *Reader) Take(ev *model.Event) bool {
	switch ev.Kind {
	case model.Text:
		return r.text(ev.Text)
	case model.Finish:
		if !r.end(ev.Reason == "stop" || ev.Reason == "tool_calls") {
			return false
		}
		if r.calls > 0 && ev.Reason == "stop" {
			done := *ev
			done.Reason = "tool_calls"
			return r.emit(&done)
		}
	case model.CallStart:
		if r.native == nil {
			r.native = make(map[int]int)
		}
		r.native[ev.Index] = r.calls
		r.calls++
		fallthrough
	case model.CallArgs:
		own := *ev
		own.Index = r.native[ev.Index]
		return r.emit(&own)
	case model.Reasoning, model.UsageSeen:
	}
	return r.emit(ev)
}

func (r *Reader) text(s string) bool {
	for s != "" {
		if r.tool != "" {
			rest, more := r.inCall(s)
			if !more {
				return false
			}
			s = rest
			continue
		}
		if r.blank {
			s = strings.TrimLeft(s, " \t\r\n")
			r.blank = s == ""
			continue
		}
		n := strings.IndexByte(s, '\n') + 1
		if n == 0 {
			n = len(s)
		}
		if !r.inText(s[:n]) {
			return false
		}
		s = s[n:]
		if r.tool != "" { // the call's tag ends somewhere in the line: what stands behind it is its body
			s, r.line = r.line+s, ""
		}
	}
	return true
}

// inText takes a line or a piece of one.
func (r *Reader) inText(piece string) bool {
	if r.within {
		r.within = !strings.HasSuffix(piece, "\n")
		return r.say(piece)
	}
	r.line += piece
	ended := strings.HasSuffix(r.line, "\n")
	word := strings.TrimLeft(r.line, " \t")
	if !ended && len(word) < len("```") && strings.Trim(word, "`") == "" {
		return true // nothing, or the beginning of a fence
	}
	if strings.HasPrefix(word, "```") {
		return r.fenced(ended)
	}
	if r.fence == "" {
		for _, tag := range r.tags {
			if strings.HasPrefix(word, tag) {
				return r.begin(tag[1:len(tag)-1], word[len(tag):])
			}
			if !ended && strings.HasPrefix(tag, word) {
				return true
			}
		}
	}
	r.line, piece = "", r.line
	r.within = !ended
	return r.say(piece)
}

// fenced opens or closes a code block once its line is whole.
func (r *Reader) fenced(ended bool) bool {
	if !ended {
		return true
	}
	mark := strings.TrimSpace(r.line)
	ticks := mark[:len(mark)-len(strings.TrimLeft(mark, "`"))]
	switch {
	case r.fence == "":
		r.fence = ticks
	case mark == ticks && len(ticks) >= len(r.fence):
		r.fence = ""
	}
	line := r.line
	r.line = ""
	return r.say(line)
}

// begin opens a call; what stands behind its tag is left in line.
func (r *Reader) begin(tool, rest string) bool {
	r.tool, r.seen, r.ends, r.line = tool, 0, 0, rest
	r.body.Reset()
	r.calls++
	return r.emit(&model.Event{Kind: model.CallStart, Index: r.calls - 1, CallID: messages.NewID("call_"), Name: tool})
}

// inCall takes more of a call, and gives back what stands behind its end.
func (r *Reader) inCall(s string) (rest string, more bool) {
	r.body.WriteString(s)
	closing, body := "</"+r.tool+">", r.body.String()
	for r.ends < maxEnds {
		i := strings.Index(body[r.seen:], closing)
		if i < 0 {
			r.seen = max(r.seen, len(body)-len(closing)+1)
			return "", true
		}
		r.ends++
		at := r.seen + i
		r.seen = at + 1
		args, err := arguments(r.tools[r.tool], body[:at])
		if err != nil {
			continue // it may stand in a value
		}
		return body[at+len(closing):], r.finish(args)
	}
	return "", true
}

// finish ends a call.
func (r *Reader) finish(args string) bool {
	r.tool, r.blank = "", true
	return r.emit(&model.Event{Kind: model.CallArgs, Index: r.calls - 1, Text: args})
}

// end comes with the end of the answer. Where the model ended by itself, a call that only lacks its closing tag is taken as it
// is. Of one that is cut off the arguments stay what they are, which is no JSON: it is refused, and the model is told.
func (r *Reader) end(whole bool) bool {
	if r.tool != "" {
		body := r.body.String()
		if i := strings.LastIndex(body, "</"); i >= 0 && strings.HasPrefix("</"+r.tool+">", body[i:]) {
			body = body[:i]
		}
		args, err := arguments(r.tools[r.tool], body)
		if !whole || err != nil || args == "{}" {
			args = "<" + r.tool + ">" + r.body.String()
		}
		return r.finish(args)
	}
	line := r.line
	r.line = ""
	return r.say(line)
}

func (r *Reader) say(text string) bool {
	return text == "" || r.emit(&model.Event{Kind: model.Text, Text: text})
}
