package troupetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/internal/yamldoc"
)

// maxTranscript is how many bytes a transcript may have.
const maxTranscript = 4 << 20

// Transcript is a file that says what an agent or a pipeline is asked, and what it should say and do then. docs/transcripts.md has
// the format.
type Transcript struct {
	Name     string   // of the file, for errors
	Agent    string   // profile; "" is the default one
	Model    string   // a script, relative to the file, or the name of a model
	Pipeline string   // file, relative to this one; "": an agent is asked
	Folder   string   // whose copy is worked in, relative to the file; "": an empty one
	Full     bool     // the copy is trusted
	Allow    []string // rules
	Set      []string // NAME=VALUE of a pipeline's inputs

	Exchanges []Exchange
	lines     []string
	places    map[string]int // of settings, as KEY VALUE: the line, from 0
}

// Exchange is one prompt, or one run of a pipeline, with what should come of it, line by line.
type Exchange struct {
	Prompt string
	Want   []string

	line       int // of the prompt, from 1
	begin, end int // the lines of what is expected: of the file, from 0, end not among them
}

// TranscriptError is what is wrong with a transcript, or with what it names.
type TranscriptError struct {
	File      string
	Line, Col int // from 1; 0: the file as a whole
	What, Fix string
	Err       error // behind it; may be nil
	excerpt   string
}

// Unwrap is the error behind it.
func (e *TranscriptError) Unwrap() error { return e.Err }

// Fault is an error about the value of a setting, such as the model or the folder that it names. Without such a setting it is one about the file.
func (t *Transcript) Fault(setting, value string, err error, fix string) *TranscriptError {
	e := &TranscriptError{File: t.Name, What: setting + ": " + err.Error(), Fix: fix, Err: err}
	i, ok := t.places[setting+" "+value]
	if !ok {
		return e
	}
	e.Line, e.Col = i+1, 1
	if at := strings.Index(t.lines[i], value); at >= 0 {
		e.Col = len([]rune(t.lines[i][:at])) + 1
	}
	e.excerpt = yamldoc.Excerpt(t.lines, e.Line, e.Col, nil)
	return e
}

// Error shows the line, with a caret where it goes wrong.
func (e *TranscriptError) Error() string {
	where := e.File
	if e.Line > 0 {
		where = fmt.Sprintf("%s:%d:%d", e.File, e.Line, e.Col)
	}
	return yamldoc.Told(where+": "+e.What, e.excerpt, e.Fix)
}

// ReadTranscript reads a transcript's file.
func ReadTranscript(path string) (*Transcript, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read transcript: %w", err)
	}
	if info.Size() > maxTranscript || !info.Mode().IsRegular() {
		return nil, &TranscriptError{File: path, What: fmt.Sprintf("it is no file of at most %d bytes", maxTranscript)}
	}
	text, err := os.ReadFile(path) //nolint:gosec // the caller names it
	if err != nil {
		return nil, fmt.Errorf("read transcript: %w", err)
	}
	return ParseTranscript(path, string(text))
}

// ParseTranscript reads the text of a transcript. What it does not know it refuses.
func ParseTranscript(name, text string) (*Transcript, error) {
	p := &parser{t: &Transcript{Name: name}}
	if len(text) > maxTranscript {
		return nil, &TranscriptError{File: name, What: fmt.Sprintf("it has more than %d bytes", maxTranscript)}
	}
	if !utf8.ValidString(text) {
		return nil, &TranscriptError{File: name, What: "the file is not UTF-8"}
	}
	p.t.lines = lines(text)
	for i, l := range p.t.lines {
		if err := p.line(i, strings.TrimRight(l, " \t")); err != nil {
			return nil, err
		}
	}
	if p.cur == nil {
		return nil, &TranscriptError{File: name, What: "nothing is asked", Fix: "a line `> PROMPT` asks an agent; `run` runs a pipeline"}
	}
	if err := p.ends(); err != nil {
		return nil, err
	}
	return p.t, nil
}

// parser is a transcript that is being read.
type parser struct {
	t      *Transcript
	cur    *Exchange
	last   string // the word of the newest line of the exchange
	apart  bool   // something that says nothing stands behind that
	ended  bool
	marked map[string]bool // settings that were given
}

func (p *parser) fail(i, col int, fix, format string, args ...any) error {
	return &TranscriptError{
		File: p.t.Name, Line: i + 1, Col: col, What: fmt.Sprintf(format, args...), Fix: fix, excerpt: yamldoc.Excerpt(p.t.lines, i+1, col, nil),
	}
}

func (p *parser) line(i int, l string) error {
	for n, r := range []rune(l) {
		if r != '\t' && yamldoc.Unsafe(r) {
			return p.fail(i, n+1, "remove it", "control character %U", r)
		}
	}
	switch {
	case l == "" || strings.HasPrefix(l, "#"):
		p.apart = true // a prompt after it is another one
		return nil
	case l == "run" || l == ">" || strings.HasPrefix(l, "> "):
		return p.ask(i, l)
	case p.cur == nil:
		return p.setting(i, l)
	}
	return p.expect(i, l)
}

// ask begins an exchange, or goes on with its prompt.
func (p *parser) ask(i int, l string) error {
	runs := l == "run"
	if runs != (p.t.Pipeline != "") {
		if runs {
			return p.fail(i, 1, "name one before: pipeline: FILE", "there is no pipeline to run")
		}
		return p.fail(i, 1, "write `run`; inputs are set with set: NAME=VALUE", "a pipeline is run, and not asked")
	}
	text := strings.TrimPrefix(strings.TrimPrefix(l, ">"), " ")
	if !runs && p.cur != nil && p.last == ">" && !p.apart {
		p.cur.Prompt += "\n" + text
		p.cur.begin, p.cur.end = i+1, i+1
		return nil
	}
	if runs && p.cur != nil {
		return p.fail(i, 1, "write another file", "a transcript has one run")
	}
	if err := p.ends(); err != nil {
		return err
	}
	if runs {
		text = ""
	}
	p.t.Exchanges = append(p.t.Exchanges, Exchange{Prompt: text, line: i + 1, begin: i + 1, end: i + 1})
	p.cur, p.last, p.ended, p.apart = &p.t.Exchanges[len(p.t.Exchanges)-1], ">", false, false
	return nil
}

// ends says whether the exchange that is being read is whole. One that expects nothing yet, but for questions that it answers, is.
func (p *parser) ends() error {
	if p.cur == nil || p.ended || len(p.cur.Want) == len(answering(p.cur.Want)) {
		return nil
	}
	return p.fail(p.cur.end-1, 1, "the last line of an exchange is `end OUTCOME`, such as `end done`", "the exchange does not end here, and nothing follows")
}

// setting reads a line before the first prompt.
func (p *parser) setting(i int, l string) error {
	key, value, ok := strings.Cut(l, ":")
	value = strings.TrimSpace(value)
	settings := []string{"agent", "allow", "folder", "model", "pipeline", "set", "trust"}
	if !ok {
		return p.fail(i, 1, "settings are KEY: VALUE; a prompt is `> PROMPT`", "this is neither a setting nor a prompt")
	}
	col := len([]rune(key)) + 2
	if value == "" {
		return p.fail(i, col, "", "%s has no value", key)
	}
	if p.marked == nil {
		p.marked = make(map[string]bool)
	}
	if p.marked[key] && key != "allow" && key != "set" {
		return p.fail(i, 1, "", "%s is given twice", key)
	}
	p.marked[key] = true
	if p.t.places == nil {
		p.t.places = make(map[string]int)
	}
	p.t.places[key+" "+value] = i
	switch key {
	case "agent":
		p.t.Agent = value
	case "allow":
		p.t.Allow = append(p.t.Allow, value)
	case "folder":
		p.t.Folder = value
	case "model":
		p.t.Model = value
	case "pipeline":
		p.t.Pipeline = value
	case "set":
		p.t.Set = append(p.t.Set, value)
	case "trust":
		if value != "full" && value != "restricted" {
			return p.fail(i, col+1, "full or restricted", "%q is no level of trust", value)
		}
		p.t.Full = value == "full"
	default:
		return p.fail(i, 1, yamldoc.DidYouMean(key, settings), "unknown setting %q", key)
	}
	return nil
}

// agentWords and runWords are what may come of an exchange.
func agentWords() []string {
	return []string{"call", "approve", "deny", "cancel", "result", "|", "<", "again", "by", "woken", "end"}
}

func runWords() []string {
	return []string{"approve", "deny", "cancel", "answer", "step", "|", "outputs", "end"}
}

// unprefixed is a line without whose it is: `by AGENT`, of an agent that was delegated to.
func unprefixed(l string) string {
	for strings.HasPrefix(l, "by ") {
		_, l, _ = strings.Cut(l[len("by "):], " ")
	}
	return l
}

// expect reads a line of what should come.
func (p *parser) expect(i int, l string) error {
	rest := unprefixed(l)
	lead := l[:len(l)-len(rest)]
	if lead != "" && p.t.Pipeline != "" {
		return p.fail(i, 1, "`by` stands in exchanges with an agent", "what its agents do is not part of the transcript of a pipeline")
	}
	word, rest, _ := strings.Cut(rest, " ")
	words := agentWords()
	if p.t.Pipeline != "" {
		words = runWords()
	}
	col := len([]rune(lead)) + 1
	switch said := []string{"call", "result", "step", "outputs", "end", "again", "approve", "deny", "cancel"}; {
	case lead != "" && word == "":
		return p.fail(i, len([]rune(l))+1, "by AGENT, and then a line as the agent's own", "by says nothing")
	case !slices.Contains(words, word) || word == "by":
		return p.fail(i, col, yamldoc.DidYouMean(word, words), "%q begins no line of an exchange", word)
	case p.ended && word != "woken":
		return p.fail(i, 1, "the next thing is a prompt, or `woken`", "the exchange has ended before")
	case word == "woken" && (!p.ended || lead != "" || rest != ""):
		return p.fail(i, col, "it stands alone, behind the `end` of a turn", "woken begins a turn that nobody was asked for")
	case word == "|" && !slices.Contains([]string{lead + "result", lead + "step", lead + "|"}, p.last):
		return p.fail(i, col, "text with `| ` stands below a result or a step", "there is nothing whose text this could be")
	case slices.Contains(said, word) && rest == "":
		return p.fail(i, len([]rune(l))+1, "", "%s says nothing", word)
	case word == "answer" && !strings.Contains(rest, " "):
		return p.fail(i, len([]rune(l))+1, "answer STEP CHOICE, such as answer gate yes", "the answer has no choice")
	}
	l, err := p.canonical(i, lead, word, rest, l)
	if err != nil {
		return err
	}
	p.cur.Want, p.cur.end = append(p.cur.Want, l), i+1
	p.last, p.ended = lead+word, lead == "" && word == "end"
	return nil
}

// canonical writes JSON in one way, so that its spaces do not count.
func (p *parser) canonical(i int, lead, word, rest, l string) (string, error) {
	lead += word + " "
	text := rest
	switch word {
	case "call":
		name, args, ok := strings.Cut(rest, " ")
		if !ok {
			return "", p.fail(i, len([]rune(l))+1, `such as call read_file {"path":"a.txt"}`, "a call has arguments, as JSON")
		}
		text, lead = args, lead+name+" "
	case "outputs":
	default:
		return l, nil
	}
	out, err := compact(text)
	if err != nil {
		return "", p.fail(i, len([]rune(lead))+1, err.Error(), "this is not JSON")
	}
	return lead + out, nil
}

// compact is JSON without spaces, the keys of objects in order, and what a terminal could obey escaped.
func compact(text string) (string, error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return "", err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return "", errors.New("something follows the value")
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return "", err
	}
	var out strings.Builder
	for _, r := range strings.TrimSuffix(b.String(), "\n") { // which stands in strings only, as nothing is indented
		if yamldoc.Unsafe(r) {
			fmt.Fprintf(&out, "\\u%04x", r)
		} else {
			out.WriteRune(r)
		}
	}
	return out.String(), nil
}
