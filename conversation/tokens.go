package conversation

import "github.com/troupe-dev/troupe/messages"

// The estimate of how many tokens a text is. It knows no vocabulary: it counts where words, numbers and
// runs of marks begin, in sixteenths of a token. Against two vocabularies in wide use it is
// within 25 % for prose, code, JSON, logs and tables, a third too low at worst for base64 and 50 % too high at
// worst for Cyrillic (docs/adr/0023-compaction.md); what providers report corrects it from the first answer on.
const (
	sixteenth   = 16
	wordCost    = 17 // a word begins
	tailCost    = 4  // each letter after the sixth
	capitalCost = 5  // each capital within a word
	markCost    = 13 // a run of marks begins
	moreCost    = 6  // each further mark
	lineCost    = 10
	moreLines   = 2
	blankCost   = 8 // a second blank in a row, and every eighth
	wideCost    = 13
	narrowCost  = 7 // a letter of two bytes

	// sampled is the size in bytes from which only samples of a text are looked at.
	sampled, sample = 8 << 10, 512

	messageCost = 4 // role and separators of a message
	callCost    = 8 // id, name and separators of a call
)

// EstimateTokens says how many tokens a text is, about. It costs some nanoseconds for each byte, and no
// more than for 8 KiB however long the text is.
func EstimateTokens(text string) int {
	if len(text) < sampled {
		return (sixteenths(text) + sixteenth - 1) / sixteenth
	}
	seen, sum := 0, 0
	for step := len(text) / (sampled / sample); seen < sampled; seen += sample {
		from := seen / sample * step
		sum += sixteenths(text[from : from+sample])
	}
	return int(float64(sum) / sixteenth * float64(len(text)) / float64(seen))
}

// classes are the classes of the bytes below 0x80: space, line end, letter, digit, and mark; the rest is wide.
const classes = "mmmmmmmmmsnmmnmmmmmmmmmmmmmmmmmm" + // control characters
	"smmmmmmmmmmmmmmmddddddddddmmmmmm" +
	"maaaaaaaaaaaaaaaaaaaaaaaaaammmmm" +
	"maaaaaaaaaaaaaaaaaaaaaaaaaammmmm"

// sixteenths goes from run to run of bytes of one class.
func sixteenths(text string) int {
	sum := 0
	for i := 0; i < len(text); {
		if text[i] >= 0x80 {
			n, end := wideRun(text, i)
			sum, i = sum+n, end
			continue
		}
		class, n := classes[text[i]], 1
		for i+n < len(text) && text[i+n] < 0x80 && classes[text[i+n]] == class {
			n++
		}
		switch class {
		case 'a':
			sum += wordCost + tailCost*max(0, n-6) + capitals(text[i+1:i+n])
		case 's':
			sum += blankCost * (min(1, n-1) + (n-1)/8)
		case 'n':
			sum += lineCost + moreLines*(n-1)
		case 'd':
			sum += sixteenth * ((n + 2) / 3)
		default:
			sum += markCost + moreCost*(n-1)
		}
		i += n
	}
	return sum
}

// capitals is what the capitals within a word add.
func capitals(letters string) int {
	sum := 0
	for i := range len(letters) {
		if letters[i] <= 'Z' {
			sum += capitalCost
		}
	}
	return sum
}

// wideRun counts the letters of several bytes from a place on, and says where they end.
func wideRun(text string, i int) (sum, end int) {
	for ; i < len(text) && text[i] >= 0x80; i++ {
		switch c := text[i]; {
		case c >= 0xe0:
			sum += wideCost
		case c >= 0xc0:
			sum += narrowCost
		}
	}
	return sum, i
}

// tokensOf estimates one message as it is sent.
func tokensOf(m *messages.Message) int {
	n := messageCost + EstimateTokens(m.Text)
	for _, c := range m.ToolCalls {
		n += callCost + EstimateTokens(c.GetName()) + EstimateTokens(c.GetArguments())
	}
	return n
}

// Tokens estimates the history as it is sent, without system prompt and tools.
func (s *State) Tokens() int { return s.tokens }

// InputTokens estimates the message that an input becomes.
func InputTokens(in *messages.InputAccepted) int {
	return messageCost + EstimateTokens(InputText(in.GetParts()))
}

// RequestTokens estimates the messages of the request that would be sent now: the history, and those inputs of the
// open turn that no answer has committed.
func (s *State) RequestTokens() int {
	n := s.tokens
	if t := s.turn; t != nil && !t.Program() {
		for _, in := range t.Inputs[t.heard:] {
			n += InputTokens(in.InputAccepted)
		}
	}
	return n
}

// NextTokens is RequestTokens for the request that follows once the open calls have these results; compare NextHash.
func (s *State) NextTokens(results ...*messages.ToolFinished) int {
	t := s.turn
	if t == nil || t.assistant == nil {
		return s.RequestTokens()
	}
	n := s.tokens + tokensOf(t.assistant)
	for i := range t.assistant.ToolCalls {
		n += messageCost
		if i < len(t.Calls) {
			n += EstimateTokens(resultText(t.Calls[i], results))
		}
	}
	return n
}

// Calibration bounds: a report that is further off from its estimate says nothing about the vocabulary,
// and one of a small request says mostly what its frame costs.
const (
	smallest = 256
	farthest = 4
)

// calibrate remembers what the provider counted for a request.
func (s *State) calibrate(started *messages.GenerationStarted, u *messages.Usage) {
	est, got := started.GetEstimatedTokens(), u.GetInputTokens()
	if est >= smallest && got <= est*farthest && est <= got*farthest {
		s.estimated, s.reported = est, got
	}
}

// Calibrated corrects an estimate by the newest report of the model's provider.
func (s *State) Calibrated(tokens int) int {
	if s.estimated == 0 {
		return tokens
	}
	return int(int64(tokens) * s.reported / s.estimated)
}
