package openai

import "bytes"

// kind says what the repairing layer does with an event.
type kind uint8

const (
	odd    kind = iota // decoded in full and written anew, or an error
	plain              // passes as it is
	text               // a delta of nothing but content, perhaps with a role: may be merged
	musing             // a delta of nothing but reasoning: may be merged
	args               // a delta of nothing but one call's arguments: may be merged
	call               // a delta that names one call: its id, its name, perhaps arguments
	bill               // no choice, only a usage in the words of OpenAI
)

// shape is what one walk over an event tells about it.
type shape struct {
	kind   kind
	choice int
	tool   int    // the provider's index of the call, for args and call
	body   []byte // the content, the reasoning or the arguments, still escaped; for bill the usage
	at     int    // where body begins, for text, musing and args
	finish bool   // a finish_reason stands in it
	word   []byte // that reason
	model  []byte // the model's name, still escaped; nil when it is not given
	id     []byte // of a call, without escapes
	name   []byte // likewise
	spent  counts // of a bill

	thought bool // reasoning stands in it, which is not in body
	billed  bool // a usage stands in it, which is in spent
}

// counts are the numbers of a bill that anybody asks for.
type counts struct{ in, out, cached, reasoning int }

// walk is the state of one classification. Each of its methods takes one JSON value and
// reports false when the event is none that can be judged by its bytes.
type walk struct {
	cursor
	shape
	seen    uint16 // fields met: a second one of the same name makes the event odd
	rich    bool   // holds a value that go-openai would decode into a structure of its own
	choices int
	content bool
	said    []byte // the content, still escaped
	saidAt  int    // where that begins
	mused   []byte // the reasoning, likewise
	musedAt int
	foreign bool // in a field that go-openai does not know
	calls   bool
	other   bool // reasoning or finish: passes, never merged
	role    bool // goes with content, or with a call's name
	clean   bool
	usage   []byte // nil when there is none, or null
}

// classify walks an event once. It never allocates; whatever it does not know for certain is odd.
func classify(data []byte) shape {
	w := walk{cursor: cursor{b: data}, clean: true}
	if !w.whole() {
		return shape{}
	}
	s := w.shape
	if w.choices == 0 && w.usage != nil {
		s.kind, s.body = bill, w.usage
		return s
	}
	if w.choices != 1 || w.usage != nil {
		return shape{}
	}
	s.kind = w.sort()
	switch {
	case s.kind == musing:
		s.body, s.at = w.mused, w.musedAt
	case !w.calls:
		s.body, s.at = w.said, w.saidAt
	}
	return s
}

// tells says whether the bytes of an event say all that go-openai's types would: also of one that says several things at once, as the
// repairing layer writes them. body then is its content, its reasoning, or the arguments of its call; kind is text, musing, call or plain.
func tells(data []byte) (shape, bool) {
	w := walk{cursor: cursor{b: data}, clean: true}
	if !w.whole() || w.choices > 1 || w.rich || w.foreign || w.thought && (w.calls || len(w.said) > 0) || !w.clean || bytes.IndexByte(w.word, '\\') >= 0 || w.calls && len(w.said) > 0 {
		return shape{}, false
	}
	s := w.shape
	s.billed = w.usage != nil
	switch {
	case w.calls:
		s.kind = call
	case w.thought:
		s.kind, s.body = musing, w.mused
	case len(w.said) > 0:
		s.kind, s.body = text, w.said
	default:
		s.kind = plain
	}
	return s, true
}

// whole takes the event, and nothing may follow it.
func (w *walk) whole() bool {
	ok := w.object(w.top)
	w.space()
	return ok && w.i == len(w.b)
}

// sort tells what an event with one choice is.
func (w *walk) sort() kind {
	named := len(w.id) > 0 || len(w.name) > 0
	switch {
	case w.calls && (w.other || w.rich || w.foreign || !w.clean || len(w.said) > 0):
		return odd
	case w.calls && named:
		return call
	case w.calls && (w.role || w.content):
		return odd
	case w.calls:
		return args
	case w.thought && len(w.said) == 0 && len(w.word) == 0 && w.clean:
		return musing
	case w.content && !w.other && w.clean && !w.foreign:
		return text
	case w.rich || w.foreign:
		return odd
	default:
		return plain
	}
}

func (w *walk) once(bit int) bool {
	first := w.seen&(1<<bit) == 0
	w.seen |= 1 << bit
	return first
}

func (w *walk) top(key []byte) bool {
	switch string(key) {
	case "choices":
		return w.once(0) && w.array(func(i int) bool {
			w.choices++
			return i == 0 && w.object(w.choiceField)
		})
	case "model":
		if w.peek() == 'n' {
			return w.literal("null")
		}
		body, clean, ok := w.str()
		w.model = body
		return ok && clean && w.once(13)
	case "id", "system_fingerprint":
		return w.peek() == 'n' && w.literal("null") || w.short()
	case "created":
		if w.peek() == 'n' {
			return w.literal("null")
		}
		_, whole, ok := w.number()
		return ok && whole
	case "object", "type":
		body, _, ok := w.str()
		return ok && string(body) != "error"
	case "usage":
		return w.once(12) && (w.peek() == 'n' && w.literal("null") || w.bill())
	case "error", "prompt_annotations", "prompt_filter_results":
		return w.peek() == 'n' && w.literal("null")
	default:
		return w.skip(0)
	}
}

// short takes a string that nobody looks at.
func (w *walk) short() bool {
	_, _, ok := w.str()
	return ok
}

func (w *walk) choiceField(key []byte) bool {
	switch string(key) {
	case "index":
		if !w.once(1) {
			return false
		}
		w.peek()
		n, _, ok := w.number()
		w.choice = n
		return ok && n >= 0
	case "delta":
		return w.once(2) && w.object(w.deltaField)
	case "finish_reason":
		if !w.once(3) {
			return false
		}
		if w.peek() == 'n' {
			return w.literal("null")
		}
		body, _, ok := w.str()
		if len(body) > 0 {
			w.finish = string(body) != "null"
			w.other, w.word = true, body
		}
		return ok && string(body) != "error"
	case "logprobs", "error", "message":
		return w.peek() == 'n' && w.literal("null")
	case "content_filter_results":
		w.rich = w.rich || w.peek() != 'n'
		return w.skip(0)
	default:
		return w.skip(0)
	}
}

func (w *walk) deltaField(key []byte) bool {
	if w.peek() == 'n' {
		return w.literal("null")
	}
	switch string(key) {
	case "content":
		body, clean, ok := w.str()
		w.content, w.said, w.saidAt, w.clean = true, body, w.i-1-len(body), w.clean && clean
		return ok && w.once(4)
	case "role":
		w.role = true
		return w.short()
	case "reasoning_content", "reasoning": // two words for it; who uses both is odd
		body, clean, ok := w.str()
		w.thought, w.mused, w.musedAt, w.clean = len(body) > 0, body, w.i-1-len(body), w.clean && clean
		w.other, w.foreign = w.other || w.thought, w.thought && string(key) == "reasoning"
		return ok && w.once(5)
	case "tool_calls":
		return w.once(6) && w.array(func(i int) bool {
			w.calls = true
			return i == 0 && w.call()
		})
	default: // refusal, function_call and what is yet unknown
		return false
	}
}

// call takes a piece of a call whose index is given.
func (w *walk) call() bool {
	var indexed, piece, ok bool
	ok = w.object(func(key []byte) bool {
		switch string(key) {
		case "index":
			w.peek()
			n, _, ok := w.number()
			w.tool, indexed = n, n >= 0
			return ok && w.once(7)
		case "id":
			w.id, ok = w.bare()
			return ok && w.once(8)
		case "type":
			return w.peek() == 'n' && w.literal("null") || w.short()
		case "function":
			return w.once(9) && w.object(func(key []byte) bool {
				switch string(key) {
				case "arguments":
					body, clean, ok := w.str()
					w.body, w.at, w.clean, piece = body, w.i-1-len(body), w.clean && clean, true
					return ok && w.once(10)
				case "name":
					w.name, ok = w.bare()
					return ok && w.once(11)
				default:
					return false
				}
			})
		default:
			return false
		}
	})
	return ok && indexed && piece
}

// bare takes null, or a string without escapes.
func (w *walk) bare() ([]byte, bool) {
	if w.peek() == 'n' {
		return nil, w.literal("null")
	}
	body, clean, ok := w.str()
	return body, ok && clean && bytes.IndexByte(body, '\\') < 0
}

// bill takes a usage in which go-openai knows every name and every number is a plain count.
func (w *walk) bill() bool {
	w.peek()
	start := w.i
	ok := w.object(func(key []byte) bool {
		switch string(key) {
		case "prompt_tokens":
			return w.count(&w.spent.in)
		case "completion_tokens":
			return w.count(&w.spent.out)
		case "total_tokens":
			return w.count(nil)
		case "prompt_tokens_details":
			return w.details("cached_tokens", &w.spent.cached)
		case "completion_tokens_details":
			return w.details("reasoning_tokens", &w.spent.reasoning)
		}
		return false
	})
	w.usage = w.b[start:w.i]
	return ok
}

// details takes the parts of a count, of which one is asked for.
func (w *walk) details(asked string, into *int) bool {
	return w.peek() == 'n' && w.literal("null") || w.object(func(key []byte) bool {
		switch string(key) {
		case asked:
			return w.count(into)
		case "audio_tokens", "accepted_prediction_tokens", "rejected_prediction_tokens":
			return w.count(nil)
		}
		return false
	})
}

func (w *walk) count(into *int) bool {
	w.peek()
	n, _, ok := w.number()
	if into != nil {
		*into = n
	}
	return ok && n >= 0
}
