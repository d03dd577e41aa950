package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	goopenai "github.com/sashabaranov/go-openai"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

// step is one thing that a stream said, with neighbours of a kind joined.
type step struct {
	kind  model.EventKind
	index int
	text  string
}

type steps []step

func (s *steps) add(ev *model.Event) bool {
	next := step{ev.Kind, ev.Index, ev.Text + ev.CallID + ev.Name + ev.Reason}
	if ev.Usage != nil {
		next.text = ev.Usage.String()
	}
	if n := len(*s); n > 0 && (ev.Kind == model.Text || ev.Kind == model.Reasoning || ev.Kind == model.CallArgs) && (*s)[n-1].kind == ev.Kind && (*s)[n-1].index == ev.Index {
		(*s)[n-1].text += next.text
		return true
	}
	*s = append(*s, next)
	return true
}

// splitter gives out a stream in pieces of random sizes, as a network does.
type splitter struct {
	rest []byte
	rnd  *rand.Rand
}

func (s *splitter) Read(p []byte) (int, error) {
	if len(s.rest) == 0 {
		return 0, io.EOF
	}
	n := min(len(s.rest), len(p), 1+s.rnd.IntN(1+s.rnd.IntN(8000)))
	copy(p, s.rest[:n])
	s.rest = s.rest[n:]
	return n, nil
}

func (s *splitter) Close() error { return nil }

// deaf is told of nothing but faults.
type deaf struct{ *try }

func (deaf) broken(err error) error { return err }
func (deaf) alive(int)              {}
func (deaf) ending()                {}

func repairOf(src io.Reader, room int) *repair {
	r := newRepair()
	r.fr.buf = make([]byte, room)
	r.open(deaf{&try{}}, src, (*repair).event)
	return r
}

// aTry is one that nothing was asked of.
func aTry() *try { return &try{m: &Model{}, req: &model.Request{}} }

// typed reads an event with go-openai's types, as line does it only where the bytes do not tell all.
func typed(d *chatDecoder, l []byte, emit func(*model.Event) bool) (bool, error) {
	var r goopenai.ChatCompletionStreamResponse
	if err := json.Unmarshal(l, &r); err != nil {
		return false, err
	}
	return d.chunk(&r, emit), nil
}

// decoded reads lines and returns the steps and how many events there were.
func decoded(t *testing.T, lines [][]byte, read func(*chatDecoder, []byte, func(*model.Event) bool) (bool, error)) (steps, int) {
	t.Helper()
	var got steps
	d := chatDecoder{t: aTry()}
	n := 0
	for _, l := range lines {
		n++
		if more, err := read(&d, l, got.add); err != nil || !more {
			t.Fatalf("%q: %v", l, err)
		}
	}
	if err := d.end(got.add); err != nil {
		t.Fatal(err)
	}
	return got, n
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// randomLiteral returns a JSON string with everything that may go wrong when two are joined.
func randomLiteral(r *rand.Rand) string {
	var b strings.Builder
	b.WriteByte('"')
	for range r.IntN(6) {
		if r.IntN(4) > 0 {
			b.WriteString(pick(r, "a", "word ", `\n`, "é", "😀"))
			continue
		}
		b.WriteString(pick(r, "a", "word ", `\n`, `\"`, `\\`, "é", "漢", "😀", `\u00e9`, `\ud83d\ude00`,
			`\ud83d`, `\ude00`, "\xf0\x9f", "\x98\x80", "\xff", `\/`, `data: x`, `{}`, `\u0022`))
	}
	b.WriteByte('"')
	return b.String()
}

// randomEvent returns an event that go-openai can decode. opened is how many calls began.
func randomEvent(r *rand.Rand, opened *int) string {
	sp := pick(r, "", "", " ")
	extra := pick(r, "", "", "", `,"logprobs":null`, `,"finish_reason":null`, `,"finish_reason":""`, `,"content_filter_results":{}`, `,"odd_field":[1,{"a":-0.5e+3}]`)
	tail := pick(r, "", "", `,"usage":null`, `,"id":"x","created":1700000000,"model":"m"`, `,"obfuscation":"abc"`, `,"error":null`)
	choice := func(delta string) string {
		return fmt.Sprintf(`{%s"choices":[{"index":%d,%s"delta":%s%s}]%s}`, sp, pick(r, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1), sp, delta, extra, tail)
	}
	switch r.IntN(36) {
	case 0:
		return choice(`{"role":"assistant","content":` + randomLiteral(r) + `}`)
	case 1:
		return choice(`{"content":` + randomLiteral(r) + `,"reasoning_content":"x"}`)
	case 18, 19, 20, 21:
		return choice(pick(r, `{"reasoning_content":`, `{"role":"assistant","content":"","reasoning_content":`, `{"content":null,"reasoning_content":`) + randomLiteral(r) + `}`)
	case 2:
		return choice(`{"Content":` + randomLiteral(r) + `}`)
	case 3:
		return choice(`{}`)
	case 4:
		return `{"choices":[],"model":"m","usage":{"prompt_tokens":` + fmt.Sprint(r.IntN(9)) + pick(r, "", "", `,"completion_tokens":7,"total_tokens":0`,
			`,"prompt_tokens_details":{"cached_tokens":3,"audio_tokens":0}`, `, "completion_tokens_details" : { "reasoning_tokens":12345678 }`,
			`,"completion_tokens_details":null,"prompt_tokens":4`, `,"cost":0.01`) + `}}`
	case 5:
		return `{"id":"y","choices":[{"index":0,"delta":{"content":null},"finish_reason":null}]}`
	case 6, 7:
		extra = `,"finish_reason":null`
		*opened++
		return fmt.Sprintf(`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":%d,"id":"id%d","type":"function","function":{"name":"n","arguments":%s}}]}}]}`, *opened-1, *opened, randomLiteral(r))
	case 8, 9, 10, 11, 12, 13, 14, 15, 16, 17:
		if *opened > 0 {
			return choice(fmt.Sprintf(`{"tool_calls":[{"index":%d,%s"function":{"arguments":%s}}]}`, r.IntN(*opened), pick(r, "", `"id":"",`, `"id":null,`), randomLiteral(r)))
		}
	}
	return choice(`{"content":` + randomLiteral(r) + `}`)
}

func TestMergedDeltasDecodeAsTheUnmergedOnesDo(t *testing.T) {
	const streams = 20_000
	in, out := 0, 0
	for seed := range uint64(streams) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var wire bytes.Buffer
		var lines [][]byte
		opened := 0
		for range 2 + rnd.IntN(24) {
			ev := randomEvent(rnd, &opened)
			lines = append(lines, []byte(ev))
			wire.WriteString(pick(rnd, "", "", ": keepalive\n\n", "event: message\n", "id: 7\r\n"))
			wire.WriteString("data:" + pick(rnd, " ", "") + ev + pick(rnd, "\n\n", "\r\n\r\n", "\r\r", "\n\r\n"))
		}
		last := `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
		lines = append(lines, []byte(last))
		wire.WriteString("data: " + last + "\n\ndata: [DONE]\n\n")

		merged, err := io.ReadAll(repairOf(&splitter{wire.Bytes(), rnd}, 64+rnd.IntN(8192)))
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, wire.Bytes())
		}
		var sent [][]byte
		for l := range bytes.Lines(merged) {
			sent = append(sent, bytes.TrimSpace(bytes.TrimPrefix(l, []byte("data: "))))
		}
		want, n := decoded(t, lines, typed)
		got, m := decoded(t, sent, (*chatDecoder).line)
		in, out = in+n, out+m
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d:\n got %+v\nwant %+v\nfrom %s\nsent %s", seed, got, want, wire.Bytes(), merged)
		}
	}
	if out > in*4/5 {
		t.Errorf("%d of %d events were left: hardly anything was merged", out, in)
	}
}

func TestOrdinaryDeltasAreNeverDecodedNorAllocated(t *testing.T) {
	for _, ev := range []string{
		`{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"gpt","service_tier":"default","system_fingerprint":"fp","choices":[{"index":0,"delta":{"content":"Hello\n"},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"abc"}`,
		`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"{\"a\""}}]},"finish_reason":null}]}`,
		`{"choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null}}]}`,
		`{"choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning":"Well","reasoning_details":null}}]}`,
		`{"choices":[{"index":0,"delta":{"content":null,"reasoning_content":"Well"},"logprobs":null,"finish_reason":null}]}`,
		`{"id":"chatcmpl-1","choices":[],"usage":{"prompt_tokens":9,"total_tokens":12,"prompt_tokens_details":{"cached_tokens":4}}}`,
	} {
		data := []byte(ev)
		if n := testing.AllocsPerRun(100, func() { classify(data) }); n != 0 {
			t.Errorf("%v allocations for %s", n, ev)
		}
		if classify(data).kind == odd {
			t.Errorf("decoded in full: %s", ev)
		}
	}
}

func TestOnlyWhatTheRuleNamesIsMerged(t *testing.T) {
	c := func(inner string) string { return `{"choices":[{"index":0,"delta":` + inner + `}]}` }
	for name, tc := range map[string]struct {
		ev   string
		want kind
	}{
		"content":                {c(`{"content":"a"}`), text},
		"arguments":              {c(`{"tool_calls":[{"index":0,"function":{"arguments":"a"}}]}`), args},
		"content with nulls":     {c(`{"content":"a","role":null,"tool_calls":null}`), text},
		"a finish":               {`{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}`, plain},
		"an empty finish":        {`{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":""}]}`, text},
		"a finish in error":      {`{"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"error"}]}`, odd},
		"logprobs":               {`{"choices":[{"index":0,"delta":{"content":"a"},"logprobs":{"content":[]}}]}`, odd},
		"usage":                  {`{"choices":[{"index":0,"delta":{"content":"a"}}],"usage":{"prompt_tokens":1}}`, odd},
		"usage alone":            {`{"choices":[],"usage":{"prompt_tokens":1}}`, bill},
		"usage twice":            {`{"choices":[],"usage":{"prompt_tokens":1},"usage":{"prompt_tokens":1}}`, odd},
		"usage in other words":   {`{"choices":[],"usage":{"prompt_cache_hit_tokens":1}}`, odd},
		"half a token":           {`{"choices":[],"usage":{"prompt_tokens":0.5}}`, odd},
		"less than no tokens":    {`{"choices":[],"usage":{"prompt_tokens":-1}}`, odd},
		"too many tokens":        {`{"choices":[],"usage":{"prompt_tokens":1234567890}}`, odd},
		"two choices":            {`{"choices":[{"index":0,"delta":{"content":"a"}},{"index":1,"delta":{"content":"a"}}]}`, odd},
		"reasoning":              {c(`{"content":null,"reasoning_content":"a"}`), musing},
		"reasoning by its name":  {c(`{"role":"assistant","content":"","reasoning":"a"}`), musing},
		"reasoning twice":        {c(`{"reasoning":"a","reasoning_content":"a"}`), odd},
		"reasoning and content":  {c(`{"content":"b","reasoning_content":"a"}`), plain},
		"content and reasoning":  {c(`{"content":"b","reasoning":"a"}`), odd},
		"no reasoning":           {c(`{"content":"b","reasoning_content":""}`), text},
		"empty reasoning":        {c(`{"content":"b","reasoning":""}`), text},
		"reasoning that is null": {c(`{"content":"b","reasoning":null}`), text},
		"an end with reasoning":  {`{"choices":[{"index":0,"delta":{"reasoning":"a"},"finish_reason":"stop"}]}`, odd},
		"half a thought":         {c(`{"reasoning_content":"\ud83d"}`), plain},
		"half of one by name":    {c(`{"reasoning":"\ud83d"}`), odd},
		"a role":                 {c(`{"role":"assistant","content":"a"}`), text},
		"content and arguments":  {c(`{"content":"a","tool_calls":[{"index":0,"function":{"arguments":"a"}}]}`), odd},
		"a new id":               {c(`{"tool_calls":[{"index":0,"id":"x","function":{"arguments":"a"}}]}`), call},
		"a name":                 {c(`{"tool_calls":[{"index":0,"function":{"name":"n","arguments":"a"}}]}`), call},
		"a name with an escape":  {c(`{"tool_calls":[{"index":0,"function":{"name":"\\u006e","arguments":"a"}}]}`), odd},
		"a name and a finish":    {`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"name":"n","arguments":"a"}}]},"finish_reason":"tool_calls"}]}`, odd},
		"a name with a role":     {c(`{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"x","type":"function","function":{"name":"n","arguments":""}}]}`), call},
		"no index":               {c(`{"tool_calls":[{"function":{"arguments":"a"}}]}`), odd},
		"two calls":              {c(`{"tool_calls":[{"index":0,"function":{"arguments":"a"}},{"index":1,"function":{"arguments":"a"}}]}`), odd},
		"arguments as an object": {c(`{"tool_calls":[{"index":0,"function":{"arguments":{}}}]}`), odd},
		"half a surrogate pair":  {c(`{"content":"\ud83d"}`), plain},
		"invalid UTF-8":          {c("{\"content\":\"\xff\"}"), plain},
		"parts":                  {c(`{"content":[{"type":"text","text":"a"}]}`), odd},
		"another field":          {c(`{"content":"a","audio":{}}`), odd},
		"a capital":              {c(`{"Content":"a"}`), odd},
		"content twice":          {c(`{"content":"a","content":"b"}`), odd},
		"an error":               {`{"choices":[{"index":0,"delta":{"content":"a"}}],"error":{"message":"m"}}`, odd},
		"a control character":    {c("{\"content\":\"a\x01\"}"), odd},
		"a bad number":           {`{"created":01,"choices":[{"index":0,"delta":{"content":"a"}}]}`, odd},
		"two documents":          {c(`{"content":"a"}`) + `{}`, odd},
		"a comma too many":       {`{"choices":[{"index":0,"delta":{"content":"a"}},]}`, odd},
		"an unended string":      {`{"choices":[{"index":0,"delta":{"content":"a`, odd},
		"nesting without end":    {c(`{"content":"a"}`)[:1] + `"x":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + "," + c(`{"content":"a"}`)[1:], odd},
	} {
		t.Run(name, func(t *testing.T) {
			if got := classify([]byte(tc.ev)).kind; got != tc.want {
				t.Errorf("kind %d, want %d: %s", got, tc.want, tc.ev)
			}
		})
	}
}

func FuzzClassifyAcceptsOnlyJSON(f *testing.F) {
	f.Add([]byte(`{"choices":[{"index":0,"delta":{"content":"a\u00e9"}}],"x":[1.5e3,true,null]}`))
	f.Add([]byte(`{"choices":[{"index":0,"delta":{"content":"a"}}]}` + "\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if s := classify(data); s.kind != odd && !json.Valid(data) {
			t.Errorf("taken for kind %d: %q", s.kind, data)
		}
		if s, ok := tells(data); ok && !json.Valid(data) {
			t.Errorf("read as kind %d: %q", s.kind, data)
		}
	})
}

// FuzzRepairGivesOutOnlyWhatGoOpenAIReads feeds any bytes as a stream: it must end, in a typed
// error or with the answer, and every line before that must be a chunk.
func FuzzRepairGivesOutOnlyWhatGoOpenAIReads(f *testing.F) {
	f.Add([]byte("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\r\n\r\ndata: [DONE]\n\n"), uint64(1))
	f.Add([]byte("{\"error\":{\"message\":\"m\"}}"), uint64(2))
	f.Add([]byte("data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"id\":\"a\",\"function\":{\"name\":\"f\"}}]},\"finish_reason\":\"stop\"}]}\n\n"), uint64(3))
	f.Fuzz(func(t *testing.T, wire []byte, seed uint64) {
		out, err := io.ReadAll(repairOf(&splitter{wire, rand.New(rand.NewPCG(seed, 3))}, 64))
		var typed *model.Error
		if err != nil && !errors.As(err, &typed) {
			t.Fatalf("an error without a class: %v", err)
		}
		if err == nil && !bytes.Contains(out, []byte(`"finish_reason":"`)) {
			t.Fatalf("ended without a reason: %q", out)
		}
		for l := range bytes.Lines(out) {
			data, ok := bytes.CutPrefix(l, []byte("data: "))
			if !ok || !json.Valid(data) {
				t.Fatalf("gave out %q", l)
			}
		}
	})
}

// BenchmarkDecode compares a stream as it is with the same after the repairing layer, both
// decoded by go-openai's types.
func BenchmarkDecode(b *testing.B) {
	var wire bytes.Buffer
	for i := range 60 {
		fmt.Fprintf(&wire, `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"gpt","system_fingerprint":"fp","choices":[{"index":0,"delta":{"content":"word%d "},"logprobs":null,"finish_reason":null}]}`+"\n\n", i)
	}
	wire.WriteString(`data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n")
	read := func(lines []byte) {
		for l := range bytes.Lines(lines) {
			if data, ok := bytes.CutPrefix(l, []byte("data: ")); ok && data[0] == '{' {
				var r goopenai.ChatCompletionStreamResponse
				if err := json.Unmarshal(data, &r); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	b.Run("as it is", func(b *testing.B) {
		for b.Loop() {
			read(wire.Bytes())
		}
	})
	b.Run("repaired", func(b *testing.B) {
		for b.Loop() {
			out, err := io.ReadAll(repairOf(bytes.NewReader(wire.Bytes()), bufferSize))
			if err != nil {
				b.Fatal(err)
			}
			read(out)
		}
	})
}

// A usage may come on several data lines; go-openai reads lines.
func TestAUsageOnSeveralLinesIsCounted(t *testing.T) {
	wire := `data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}` + "\n\n" +
		`data: {"choices":[],"usage":{` + "\n" + `data: "prompt_tokens":5}}` + "\n\ndata: [DONE]\n\n"
	out, err := io.ReadAll(repairOf(strings.NewReader(wire), 64))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != 2 || !strings.Contains(lines[1], `"prompt_tokens":5`) {
		t.Errorf("sent %q", lines)
	}
}

// TestTheModelIsNamedWheneverTheProviderNamesIt: also when that is after the first words of the answer, or only at its end.
func TestTheModelIsNamedWheneverTheProviderNamesIt(t *testing.T) {
	text := `{%s"choices":[{"index":0,"delta":{"content":"a"}}]}`
	end := `{%s"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	bill := `{%s"choices":[],"usage":{"prompt_tokens":1}}`
	events := []string{text, text, end, bill}
	for named := range events {
		for _, apart := range []bool{false, true} {
			var wire strings.Builder
			for i, ev := range events {
				name := ""
				if i == named {
					name = `"model":"m",`
				}
				fmt.Fprintf(&wire, "data: "+ev+"\n\n", name)
			}
			var src io.Reader = strings.NewReader(wire.String() + "data: [DONE]\n\n")
			if apart {
				src = iotest.OneByteReader(src)
			}
			out, err := io.ReadAll(repairOf(src, 4096))
			if err != nil {
				t.Fatal(err)
			}
			d := chatDecoder{t: aTry()}
			for l := range bytes.Lines(out) {
				if _, err := d.line(bytes.TrimPrefix(l, []byte("data: ")), func(*model.Event) bool { return true }); err != nil {
					t.Fatal(err)
				}
			}
			if d.model != "m" || d.finish != "stop" || d.usage.GetInputTokens() != 1 {
				t.Errorf("named in event %d: model %q, reason %q, usage %v\nsent %s", named, d.model, d.finish, d.usage, out)
			}
		}
	}
}

// TestOneSideOfABillSaysNothingOfTheOther: as go-openai's types read it.
func TestOneSideOfABillSaysNothingOfTheOther(t *testing.T) {
	for usage, want := range map[string]counts{
		`{"prompt_tokens_details":{"cached_tokens":3},"completion_tokens_details":{"reasoning_tokens":4}}`: {cached: 3, reasoning: 4},
		`{"prompt_tokens_details":{"reasoning_tokens":4,"cached_tokens":3}}`:                               {cached: 3},
		`{"completion_tokens_details":{"cached_tokens":3,"reasoning_tokens":4}}`:                           {reasoning: 4},
	} {
		ev := `{"choices":[],"usage":` + usage + `}`
		out, err := io.ReadAll(repairOf(strings.NewReader("data: "+ev+"\n\ndata: "+`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n"), 4096))
		if err != nil {
			t.Fatal(err)
		}
		var sent [][]byte
		for l := range bytes.Lines(out) {
			sent = append(sent, bytes.TrimPrefix(l, []byte("data: ")))
		}
		got, _ := decoded(t, sent, (*chatDecoder).line)
		whole, _ := decoded(t, [][]byte{[]byte(ev)}, typed)
		said := (&messages.Usage{CachedTokens: int64(want.cached), ReasoningTokens: int64(want.reasoning)}).String()
		if got[0].text != said || whole[0].text != said {
			t.Errorf("%s: %+v, by its types %+v, want %s", usage, got[0], whole[0], said)
		}
	}
}

// TestWhatALongEventMadeLargeIsNotKept: also what stands around its text, which is kept to compare the next one with.
func TestWhatALongEventMadeLargeIsNotKept(t *testing.T) {
	long := strings.Repeat("x", 20<<10)
	for name, ev := range map[string]string{
		"nothing":   `{"choices":[{"index":0,"delta":{"content":"a"}}]}`,
		"around it": `{"id":"` + long + `","choices":[{"index":0,"delta":{"content":"a"}}],"object":"` + long + `"}`,
		"its model": `{"model":"` + long + long + `","choices":[{"index":0,"delta":{"role":"assistant"}}]}`,
	} {
		r := repairOf(nil, bufferSize)
		r.event(event{data: []byte(ev)}, false)
		if r.small() != (name == "nothing") {
			t.Errorf("%s: small is %t", name, r.small())
		}
	}
}

// TestAnEventLikeTheOneBeforeIsReadAsIfItWereAlone: whatever was learnt from one event, another one says what it says by itself.
func TestAnEventLikeTheOneBeforeIsReadAsIfItWereAlone(t *testing.T) {
	alike := 0
	for seed := range uint64(20_000) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		var l likeness
		opened := 0
		for range 8 {
			data := []byte(randomEvent(rnd, &opened))
			if rnd.IntN(4) == 0 && len(l.before) > 0 { // something else between the same
				data = slices.Concat(l.before, []byte(pick(rnd, `a`, ``, `\`, `"`, `a","content":"b`, `\ud83d`, "\x01", "\xff", `"}`, `x"}]}{"a":"`)), l.after)
			}
			want := classify(data)
			got, ok := l.read(data)
			if ok {
				alike++
				if got.kind != want.kind || got.choice != want.choice || got.tool != want.tool || string(got.body) != string(want.body) || want.finish {
					t.Fatalf("seed %d: %q is read as %+v, and alone as %+v", seed, data, got, want)
				}
			}
			l.learn(data, &want)
		}
	}
	if alike < 3_000 {
		t.Errorf("%d events were like the one before", alike)
	}
}
