package xmltools_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/model/xmltools"
)

func defs() []model.ToolDef {
	return []model.ToolDef{
		{Name: "read", Schema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"},"limit":{"type":"integer"}},"required":["path"]}`)},
		{Name: "read_more", Schema: json.RawMessage(`{"type":"object","properties":{}}`)},
		{Name: "write", Schema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"},"content":{"type":"string"},"mode":{"type":["string","null"]},
			"lines":{"type":"array","items":{"type":"integer"}},"hard":{"type":"boolean"},"any":{}}}`)},
	}
}

// answer runs events of a model through a Reader and collects what comes out.
func answer(t interface{ Fatalf(string, ...any) }, pieces []string, reason string) (text string, calls []*messages.ToolCall, finish string) {
	r := xmltools.NewReader(defs(), func(ev *model.Event) bool {
		switch ev.Kind {
		case model.Text:
			text += ev.Text
		case model.CallStart:
			if ev.Index != len(calls) || ev.CallID == "" {
				t.Fatalf("call %d of %d, id %q", ev.Index, len(calls), ev.CallID)
			}
			calls = append(calls, &messages.ToolCall{Id: ev.CallID, Name: ev.Name})
		case model.CallArgs:
			calls[ev.Index].Arguments += ev.Text
		case model.Finish:
			finish = ev.Reason
		case model.Reasoning, model.UsageSeen:
		}
		return true
	})
	for _, p := range pieces {
		r.Take(&model.Event{Kind: model.Text, Text: p})
	}
	r.Take(&model.Event{Kind: model.Finish, Reason: reason})
	return text, calls, finish
}

func shown(calls []*messages.ToolCall) string {
	var out []string
	for _, c := range calls {
		out = append(out, c.GetName()+" "+c.GetArguments())
	}
	return strings.Join(out, " | ")
}

func TestCallsAreFoundInTextHoweverItIsCut(t *testing.T) {
	for name, c := range map[string]struct{ in, text, calls string }{
		"text alone":                   {"a < b, <i>, </read>\n<p>\n", "a < b, <i>, </read>\n<p>\n", ""},
		"a call":                       {"I look.\n<read>\n<path>a.go</path>\n<limit>3</limit>\n</read>\n", "I look.\n", `read {"path":"a.go","limit":3}`},
		"on one line":                  {"<read><path>a</path></read>", "", `read {"path":"a"}`},
		"indented":                     {"  <read>\n  <path>a</path>\n  </read>\nDone.", "Done.", `read {"path":"a"}`},
		"without arguments":            {"<read_more>\n</read_more>", "", `read_more {}`},
		"a name that begins like one":  {"<read_more></read_more><read><path>x</path></read>", "", `read_more {} | read {"path":"x"}`},
		"not at the start of a line":   {"Use <read><path>a</path></read> for it.", "Use <read><path>a</path></read> for it.", ""},
		"in a fence":                   {"```xml\n<read><path>a</path></read>\n```\n<read><path>b</path></read>", "```xml\n<read><path>a</path></read>\n```\n", `read {"path":"b"}`},
		"a longer fence":               {"````\n```\n<read>\n````\n", "````\n```\n<read>\n````\n", ""},
		"an unknown tool":              {"<rm>\n<path>a</path>\n</rm>", "<rm>\n<path>a</path>\n</rm>", ""},
		"two":                          {"<read><path>a</path></read>\n\n<read><path>b</path></read>", "", `read {"path":"a"} | read {"path":"b"}`},
		"lines":                        {"<write>\n<content>\n  one\n\ttwo & <three>\n</content>\n</write>", "", `write {"content":"  one\n\ttwo & <three>"}`},
		"a value with tags of its own": {"<write>\n<content>x</content> y</content>\n<path>p</path>\n</write>", "", `write {"content":"x</content> y","path":"p"}`},
		"a value with the call's end":  {"<write>\n<content>\n</write>\n</content>\n</write>", "", `write {"content":"</write>"}`},
		"cdata":                        {"<write><content><![CDATA[</content><path>x</path></write>]]></content></write>", "", `write {"content":"</content><path>x</path></write>"}`},
		"cdata with its own end":       {"<write><content><![CDATA[a]]>b]]></content></write>", "", `write {"content":"a]]>b"}`},
		"values by their type":         {"<write><lines>[1,2]</lines><hard>true</hard><mode>null</mode><any>{\"a\":1}</any></write>", "", `write {"lines":[1,2],"hard":true,"mode":null,"any":{"a":1}}`},
		"a string stays one":           {"<read><path>3</path><limit>many</limit></read>", "", `read {"path":"3","limit":"many"}`},
		"any of text":                  {"<write><any>in progress</any></write>", "", `write {"any":"in progress"}`},
		"an argument it has not":       {"<read><nope>1</nope></read>", "", `read {"nope":1}`},
		"one given twice":              {"<read><path>a</path><path>b</path></read>", "", `read {"path":"a","path":"b"}`},
		"cut off":                      {"<read>\n<path>a", "", "read <read>\n<path>a"},
		"only its end is cut off":      {"<read>\n<path>a</path>\n</re", "", `read {"path":"a"}`},
		"nothing in it":                {"<read>", "", "read <read>"},
		"half a tag at the end":        {"well\n<rea", "well\n<rea", ""},
		"text where arguments belong":  {"<read>\na.go\n</read>\n", "", "read <read>\na.go\n</read>\n"},
	} {
		t.Run(name, func(t *testing.T) {
			for size := 1; size <= len(c.in); size++ {
				var pieces []string
				for i := 0; i < len(c.in); i += size {
					pieces = append(pieces, c.in[i:min(i+size, len(c.in))])
				}
				text, calls, finish := answer(t, pieces, "stop")
				if text != c.text || shown(calls) != c.calls {
					t.Fatalf("in pieces of %d: %q and %s", size, text, shown(calls))
				}
				if want := map[bool]string{true: "tool_calls", false: "stop"}[len(calls) > 0]; finish != want {
					t.Errorf("it ended with %q", finish)
				}
			}
		})
	}
}

// TestWhatALimitCutsOffIsNoCall: what is there may be half of it, however whole it looks.
func TestWhatALimitCutsOffIsNoCall(t *testing.T) {
	for _, in := range []string{"<read>\n<path>a</path>\n", "<write>\n<path>p</path>\n<content>\n<page>\n<content>a</content>\n", "<read><path>a</path></rea"} {
		for reason, want := range map[string]bool{"length": false, "content_filter": false, "stop": true} {
			_, calls, _ := answer(t, []string{in}, reason)
			if len(calls) != 1 || json.Valid([]byte(calls[0].GetArguments())) != want {
				t.Errorf("%q, ended by %s: %s", in, reason, shown(calls))
			}
		}
	}
}

// TestACallThatAModelMadeCanBeReadAgain: what stands in the next request is what the model said, and any value survives.
func TestACallThatAModelMadeCanBeReadAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.OneOf(
			rapid.StringOf(rapid.SampledFrom([]rune("ab \n\t<>/&]["))),
			rapid.SampledFrom([]string{"</content>", "<path>x</path>", "</write>", "<![CDATA[", "null", "3", `{"a":1}`, "\n", "", "a\r\nb"}),
		).Draw(t, "value")
		if strings.Contains(value, "]]>") && strings.Contains(value, "</content>") || strings.HasPrefix(strings.TrimSpace(value), "<![CDATA[") && strings.Contains(value, "]]>") {
			t.Skip("no form holds both")
		}
		raw, _ := json.Marshal(map[string]any{"content": value, "path": "p"})
		text, ok := xmltools.Call(&messages.ToolCall{Name: "write", Arguments: string(raw)})
		if !ok {
			t.Fatalf("%s cannot be written", raw)
		}
		said, calls, _ := answer(t, []string{text}, "stop")
		var got map[string]any
		if len(calls) != 1 || said != "" || json.Unmarshal([]byte(calls[0].GetArguments()), &got) != nil || got["content"] != value || got["path"] != "p" {
			t.Fatalf("%q came back as %q and %s", text, said, shown(calls))
		}
	})
}

func TestAnAnswerIsNeverLostAndNeverPanics(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pieces := rapid.SliceOf(rapid.SampledFrom([]string{"<read>", "</read>", "<path>", "</path>", "x", "\n", "```", "<![CDATA[", "]]>", "<", "</", " ", "<read_more>", "</read_more>"})).Draw(t, "pieces")
		text, calls, _ := answer(t, pieces, "length")
		whole := strings.Join(pieces, "")
		if len(calls) == 0 && text != whole {
			t.Fatalf("%q became %q", whole, text)
		}
		if !strings.HasPrefix(whole, text[:min(len(text), strings.Index(whole+"<read", "<read"))]) {
			t.Fatalf("%q became %q", whole, text)
		}
	})
}

func TestCallsOfItsOwnKeepTheirPlaces(t *testing.T) {
	var got []string
	r := xmltools.NewReader(defs(), func(ev *model.Event) bool {
		got = append(got, fmt.Sprint(ev.Kind, ev.Index, ev.Name, ev.Reason))
		return true
	})
	r.Take(&model.Event{Kind: model.Text, Text: "<read><path>a</path></read>"})
	r.Take(&model.Event{Kind: model.CallStart, Index: 0, CallID: "c", Name: "write"})
	r.Take(&model.Event{Kind: model.CallArgs, Index: 0, Text: "{}"})
	r.Take(&model.Event{Kind: model.Finish, Reason: "length"})
	want := []string{fmt.Sprint(model.CallStart, 0, "read", ""), fmt.Sprint(model.CallArgs, 0, "", ""), fmt.Sprint(model.CallStart, 1, "write", ""), fmt.Sprint(model.CallArgs, 1, "", ""), fmt.Sprint(model.Finish, 0, "", "length")}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v", got)
	}
}

func TestWhoStopsListeningIsAskedNoMore(t *testing.T) {
	for limit := range 3 {
		n := 0
		r := xmltools.NewReader(defs(), func(*model.Event) bool { n++; return n <= limit })
		more := true
		for _, ev := range []*model.Event{{Kind: model.Text, Text: "a\n<read><path>x</path></read>\nb\n"}, {Kind: model.Finish, Reason: "stop"}} {
			more = more && r.Take(ev)
		}
		if more || n != limit+1 {
			t.Errorf("after %d events: %v, %d", limit, more, n)
		}
	}
}
