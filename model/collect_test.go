package model_test

import (
	"errors"
	"iter"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
)

func stream(last error, evs ...model.Event) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		for _, ev := range evs {
			if !yield(ev, nil) {
				return
			}
		}
		if last != nil {
			yield(model.Event{}, last)
		}
	}
}

func TestCollectPutsInterleavedCallsTogetherByIndex(t *testing.T) {
	seen := 0
	got, err := model.Collect(stream(nil,
		model.Event{Kind: model.Reasoning, Text: "hm"},
		model.Event{Kind: model.Text, Text: "a"},
		model.Event{Kind: model.Text, Text: "b"},
		model.Event{Kind: model.Text, Text: "c"},
		model.Event{Kind: model.CallStart, Index: 0, CallID: "x", Name: "read_file"},
		model.Event{Kind: model.CallStart, Index: 1, CallID: "x", Name: "exec"},
		model.Event{Kind: model.CallArgs, Index: 1, Text: `{"command":`},
		model.Event{Kind: model.CallArgs, Index: 0, Text: `{"path":"p"}`},
		model.Event{Kind: model.CallArgs, Index: 1, Text: `"ls"}`},
		model.Event{Kind: model.UsageSeen, Usage: &messages.Usage{InputTokens: 3}},
		model.Event{Kind: model.Finish, Reason: "tool_calls", Meta: model.Meta{RequestID: "r"}},
		model.Event{Kind: model.Text, Text: "after the end"},
	), func(model.Event) { seen++ })
	if err != nil {
		t.Fatal(err)
	}
	if got.Text != "abc" || got.Reasoning != "hm" || got.Reason != "tool_calls" || got.Meta.RequestID != "r" || got.Usage.InputTokens != 3 {
		t.Errorf("got %+v", got)
	}
	if len(got.ToolCalls) != 2 || got.ToolCalls[0].Arguments != `{"path":"p"}` || got.ToolCalls[1].Arguments != `{"command":"ls"}` || got.ToolCalls[1].Name != "exec" {
		t.Errorf("calls %v", got.ToolCalls)
	}
	if seen != 11 {
		t.Errorf("the observer saw %d events, want the 11 up to the finish", seen)
	}
}

func TestCollectKeepsWhatHadArrivedWhenTheStreamFails(t *testing.T) {
	broken := &model.Error{Class: model.Overloaded, Message: "gone"}
	got, err := model.Collect(stream(broken, model.Event{Kind: model.Text, Text: "half"}), nil)
	if !errors.Is(err, broken) || got.Text != "half" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestCollectRefusesStreamsThatAreNotWhole(t *testing.T) {
	text := model.Event{Kind: model.Text, Text: "half"}
	start := model.Event{Kind: model.CallStart, Index: 0, CallID: "a", Name: "n"}
	for name, c := range map[string]struct {
		evs  []model.Event
		want model.Class
	}{
		"no finish":            {[]model.Event{text}, model.Truncated},
		"nothing at all":       {nil, model.Truncated},
		"a gap in the calls":   {[]model.Event{start, {Kind: model.CallStart, Index: 2}}, model.Protocol},
		"a call started twice": {[]model.Event{start, start}, model.Protocol},
		"arguments of no call": {[]model.Event{{Kind: model.CallArgs, Index: 0, Text: "{}"}}, model.Protocol},
		"a negative index":     {[]model.Event{start, {Kind: model.CallArgs, Index: -1, Text: "{}"}}, model.Protocol},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := model.Collect(stream(nil, c.evs...), nil)
			var me *model.Error
			if !errors.As(err, &me) || me.Class != c.want || got == nil {
				t.Errorf("got %v, %v, want class %s", got, err, c.want)
			}
		})
	}
}
