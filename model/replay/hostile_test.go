package replay_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/model/replay"
)

func read(t testing.TB, r io.ReadCloser) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestWhatIsNoRecordingIsRefusedWithThePlace(t *testing.T) {
	const begin, end = `{"recording": 1}` + "\n", `"answer": {"finish": "stop"}}`
	for name, tc := range map[string]struct{ text, want string }{
		"nothing":            {"", "r.rec: it is no recording"},
		"a script":           {"name: x\nrules: []\n", "r.rec:1:1: a recording is a sequence of JSON objects"},
		"no header":          {`{"call": 1, ` + end, "r.rec:1:1: there is no {\"recording\": 1} before this"},
		"another version":    {`{"recording": 2}`, "r.rec:1:2: this is version 2 of the format; this program knows 1"},
		"no version":         {`{"recording": "x"}`, "r.rec:1:17: string of JSON cannot be recording"},
		"an unknown key":     {begin + "{\"call\": 1,\n \"agnet\": \"a\", " + end, "r.rec:3:2: unknown key \"agnet\"\n  3 |  \"agnet\": \"a\", \"answer\": {\"finish\": \"stop\"}}\n    |  ^\n  did you mean \"agent\"?"},
		"a key in a header":  {`{"recording": 1, "by": 2}`, `unknown key "by"`},
		"a wrong kind":       {begin + `{"call": "one"}`, "string of JSON cannot be call"},
		"a missing comma":    {begin + `{"call": 1 "x"}`, "r.rec:2:12: invalid character"},
		"a number left out":  {begin + `{"call": 2, ` + end, "r.rec:2:2: call 2 stands where call 1 was due"},
		"after itself":       {begin + `{"call": 1, "after": 1, ` + end, "r.rec:2:13: there is no call 1 before this one"},
		"a setup to come":    {begin + `{"call": 1, "setup": 7, ` + end, "no call 7 before"},
		"below nothing":      {begin + `{"call": 1, "after": -1, ` + end, "no call -1"},
		"after a failure":    {begin + `{"call": 1, "error": {"class": "auth", "message": "no"}}{"call": 2, "after": 1, ` + end, "call 1 has no answer to go on from"},
		"no answer":          {begin + `{"call": 1}`, "either an answer or an error"},
		"both":               {begin + `{"call": 1, "error": {"class": "auth", "message": "no"}, ` + end, "either an answer or an error"},
		"an unknown class":   {begin + `{"call": 1, "error": {"class": "odd", "message": "no"}}`, `"odd" is no class of error`},
		"an unmatched class": {begin + `{"call": 1, "error": {"class": "unmatched", "message": "no"}}`, "no class of error"},
		"an odd status":      {begin + `{"call": 1, "error": {"class": "auth", "status": 200, "message": "no"}}`, "200 is no status"},
		"an unknown role":    {begin + `{"call": 1, "messages": [{"role": "wizard"}], ` + end, `"wizard" is no role`},
		"an odd finish":      {begin + `{"call": 1, "answer": {"finish": "because"}}`, "finish is stop"},
		"usage below 0":      {begin + `{"call": 1, "answer": {"finish": "stop", "usage": {"input": -1}}}`, "usage below 0"},
		"not UTF-8":          {begin + "{\"call\": 1, \"agent\": \"\xff\", " + end, "not UTF-8"},
		"something between":  {begin + "and " + begin, "r.rec:2:1: a recording is a sequence"},
		"control characters": {begin + "{\"call\x1b[2J\": 1}", "invalid character"},
		"deep nesting":       {begin + strings.Repeat(`{"call":`, 20000), "exceeded max depth"},
		"cut at once":        {`{"recor`, "ends in the middle of its first record"},
	} {
		_, err := replay.Parse("r.rec", []byte(tc.text))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %s", name, err, tc.want)
		} else if strings.ContainsRune(err.Error(), '\x1b') {
			t.Errorf("%s: the error holds what a terminal obeys: %q", name, err)
		}
	}
	huge := filepath.Join(t.TempDir(), "huge.rec")
	if err := os.WriteFile(huge, []byte(begin), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(huge, 64<<20+1); err != nil {
		t.Fatal(err)
	}
	for _, open := range []func() error{
		func() error { _, err := replay.Load(huge); return err },
		func() error { _, err := replay.Open(huge, nil); return err },
		func() error { _, err := replay.Load(t.TempDir()); return err },
		func() error { _, err := replay.Open(t.TempDir(), nil); return err },
	} {
		if err := open(); err == nil || !strings.Contains(err.Error(), "at most") && !strings.Contains(err.Error(), "it is no file") {
			t.Errorf("got %v", err)
		}
	}
}

func TestARecordingIsWholeWhereverItsWriterWasKilled(t *testing.T) {
	file := recording(t, "", nil, func(m model.Model) { tidy(t, m, "/home/one", "job_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa") })
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	first := strings.Index(string(whole), "\n") + 1
	records := []int{first, strings.Index(string(whole), "{\n \"call\": 2"), len(whole)}
	for end := first; end <= len(whole); end++ {
		r, err := replay.Parse("r.rec", whole[:end])
		if err != nil {
			t.Fatalf("cut at %d: %v", end, err)
		}
		torn := end != records[0] && end < records[1]-1 || end > records[1] && end < records[2]-1
		if (r.Torn != "") != torn {
			t.Errorf("cut at %d of %v: torn is %q", end, records, r.Torn)
		}
		if end%37 != 0 && end != records[1]+1 {
			continue
		}
		cut := filepath.Join(t.TempDir(), "cut.rec")
		if err := os.WriteFile(cut, whole[:end], 0o600); err != nil {
			t.Fatal(err)
		}
		again, err := replay.Open(cut, nil)
		if err != nil {
			t.Fatal(err)
		}
		if (again.Torn != "") != torn {
			t.Errorf("cut at %d: the recorder says %q", end, again.Torn)
		}
		tidy(t, again.Model(scripted(t), 8000), "/home/one", "job_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
		r = load(t, cut)
		tidy(t, r.Model(replay.Options{}), "/home/two", "job_bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb")
		if r.Torn != "" {
			t.Errorf("cut at %d: torn %q", end, r.Torn)
		}
	}
}

func TestTwoMayNotRecordInOneFileAtATime(t *testing.T) {
	file := filepath.Join(t.TempDir(), "both.rec")
	one, err := replay.Open(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := replay.Open(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	must(t, one.Model(scripted(t), 0), request("", "", user("hello")))
	must(t, other.Model(scripted(t), 0), request("", "", user("hello")))
	if err := other.Close(); err == nil || !strings.Contains(err.Error(), "somebody else has written to it") {
		t.Errorf("got %v", err)
	}
	if err := one.Close(); err != nil {
		t.Error(err)
	}
	load(t, file)
}

func FuzzRecordings(f *testing.F) {
	f.Add([]byte(`{"recording": 1}{"call": 1, "answer": {"finish": "stop", "text": ["a", "b"]}}{"call": 2, "after": 1, "messages": [{"role": "user", "text": "⟦x.1⟧"}], "error": {"class": "auth", "message": "no"}}`))
	f.Add([]byte(`{"recording": 1}{"call": 1, "tools": [{"name": "x", "schema": null}], "answer": {"finish": "stop"}}{"ca`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := replay.Parse("f.rec", data)
		if err != nil {
			return
		}
		c, err := ask(t, r.Model(replay.Options{}), request("a", "/home", user("⟦folder.1⟧ hello")))
		if err == nil && c.Reason == "" {
			t.Error("an answer without a finish")
		}
	})
}
