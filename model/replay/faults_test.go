package replay_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/model/canned"
	"github.com/troupe-dev/troupe/model/replay"
)

// service is a model that fails or ends in ways of its own, one after the other; nil: it answers "well".
type service struct {
	fails  []error
	finish string
	n      int
}

func (s *service) Attempts() int { return 5 }

func (s *service) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	s.n++
	if s.n <= len(s.fails) {
		return func(yield func(model.Event, error) bool) { yield(model.Event{}, s.fails[s.n-1]) }
	}
	return canned.Stream(ctx, ends(s.finish), req)
}

// ends answers "well" and ends for a reason.
type ends string

func (e ends) Title() string { return "ends" }
func (e ends) Answer(*model.Request) (*canned.Answer, error) {
	return &canned.Answer{Text: "well", Finish: string(e), Cut: -1, Usage: &messages.Usage{}}, nil
}

func called(name string) *model.Request {
	r := request("a", "", user("x"))
	r.Model = name
	return r
}

// A step that had so many requests that nothing came of has as many when it is played.
func TestAPlayedModelIsAskedAsOftenAsTheRecordedOne(t *testing.T) {
	s := &service{}
	for range 4 {
		s.fails = append(s.fails, &model.Error{Class: model.Overloaded, Status: 503, Message: "full"})
	}
	file := recording(t, "", nil, func(model.Model) {})
	r, err := replay.Open(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := r.Model(s, 0)
	for range 4 {
		if _, err := ask(t, m, called("one")); err == nil {
			t.Fatal("it did not fail")
		}
	}
	must(t, m, called("one"))
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if got := model.Attempts(load(t, file).Model(replay.Options{})); got != 5 {
		t.Errorf("it is worth %d requests; the one that was recorded 5", got)
	}
}

// Where another model stood in, the one that plays the recording is both: a failure for good would end what went on.
func TestAFailureThatAnotherModelMadeGoodIsNotPlayed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "r.rec")
	r, err := replay.Open(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	own := r.Model(&service{fails: []error{&model.Error{Class: model.Auth, Status: 401, Message: "no"}}}, 0)
	if _, err := ask(t, own, called("one")); err == nil {
		t.Fatal("it did not fail")
	}
	must(t, r.Model(&service{}, 0), called("other"))
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	m := load(t, file).Model(replay.Options{})
	if c := must(t, m, called("played")); c.Text != "well" {
		t.Errorf("got %+v", c)
	}
	if left := m.(interface{ Unplayed() []string }).Unplayed(); len(left) > 0 {
		t.Errorf("not played: %v", left)
	}
}

// Whatever a model does, the file that comes of it is one that can be read.
func TestWhatIsRecordedCanBeRead(t *testing.T) {
	for name, s := range map[string]*service{
		"a status that is none": {fails: []error{&model.Error{Class: model.Protocol, Status: 302, Message: "elsewhere"}}},
		"a class of its own":    {fails: []error{&model.Error{Class: "billing", Message: "no"}}},
		"an end of its own":     {finish: "end_turn"},
	} {
		file := filepath.Join(t.TempDir(), "r.rec")
		r, err := replay.Open(file, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = ask(t, r.Model(s, 0), called("one"))
		must(t, r.Model(&service{}, 0), called("one"))
		cerr := r.Close()
		if s.finish != "" {
			if cerr == nil || !strings.Contains(cerr.Error(), `call 1, and all after it, are not recorded`) || !strings.Contains(cerr.Error(), `"end_turn"`) {
				t.Errorf("%s: it was recorded, or nothing says why not: %v", name, cerr)
			}
			continue
		}
		if err == nil || cerr != nil {
			t.Fatalf("%s: %v, %v", name, err, cerr)
		}
		load(t, file)
	}
}

// A place below the folder for temporary files that the model has made up is its own, and stays: a program may depend on how it is called.
func TestAPlaceThatTheModelMadeUpIsPlayedAsItWas(t *testing.T) {
	const made = "/tmp/check1.go"
	talk := func(m model.Model) []string {
		ms := []*messages.Message{user("check it")}
		var said []string
		for range 2 {
			c := must(t, m, request("a", "", ms...))
			said = append(said, c.Text)
			ms = append(ms, &messages.Message{Role: messages.Assistant, Text: c.Text}, user("I ran "+made+" in /tmp/own"+time.Now().Format("150405.000000000")))
		}
		return said
	}
	n := 0
	file := filepath.Join(t.TempDir(), "r.rec")
	r, err := replay.Open(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	talk(r.Model(says(func() string { n++; return [...]string{"go run " + made, "it ran as src/tmp/a1"}[n-1] }), 0))
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if got := talk(load(t, file).Model(replay.Options{})); got[0] != "go run "+made || got[1] != "it ran as src/tmp/a1" {
		t.Errorf("got %q", got)
	}
	if b, err := os.ReadFile(file); err != nil || !strings.Contains(string(b), `"after": 1`) || !strings.Contains(string(b), "⟦temp.1⟧") {
		t.Errorf("%v\n%s", err, b)
	}
}

// A folder of one element, as containers have them, is not what paths within another one have in them.
func TestAFolderOfOneElementIsNoPartOfPathsThatAreRelative(t *testing.T) {
	ask := func(m model.Model, folder string) string {
		return must(t, m, request("a", folder, user("look at src/app/main.go and ./app/x, and at "+folder+"/y"))).Text
	}
	file := recording(t, "", nil, func(m model.Model) { ask(m, "/app") })
	if got := ask(load(t, file).Model(replay.Options{}), "/srv/other"); got != "you said: look at src/app/main.go and ./app/x, and at /srv/other/y" {
		t.Errorf("got %q", got)
	}
}

func TestWhoAsksNothingLeavesNoRecording(t *testing.T) {
	file := filepath.Join(t.TempDir(), "r.rec")
	recording(t, file, nil, func(model.Model) {})
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there is a file: %v", err)
	}
	recording(t, file, nil, func(m model.Model) { must(t, m, called("one")) })
	was, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	recording(t, file, nil, func(model.Model) {})
	if is, err := os.ReadFile(file); err != nil || string(is) != string(was) {
		t.Errorf("what was there is now %v\n%s", err, is)
	}
}

func TestARecordingIsForItsOwnerAlone(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no file modes")
	}
	file := filepath.Join(t.TempDir(), "r.rec")
	for range 2 {
		recording(t, file, nil, func(m model.Model) { must(t, m, called("one")) })
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("%v, %v", info, err)
		}
		if err := os.Chmod(file, 0o644); err != nil { //nolint:gosec // it is to be narrowed when it is gone on with
			t.Fatal(err)
		}
	}
}

// Failures of lives and models are looked through once, however many there are.
func TestManyCallsOfTheSameRequestAreIndexedAtOnce(t *testing.T) {
	var b strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&b, "{\"recording\": 1}\n{\"call\": %d, \"model\": \"m%d\", \"error\": {\"class\": \"auth\", \"message\": \"no\"}}\n", i+1, i%2)
	}
	r, err := replay.Parse("r.rec", []byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	if left := r.Model(replay.Options{}).(interface{ Unplayed() []string }).Unplayed(); len(left) != 1 || !strings.HasPrefix(left[0], "r.rec:40000:") {
		t.Errorf("%d calls are to be played: %.200q", len(left), left)
	}
}

func TestACallThatWasPlayedCountsAlsoWhenItsRepetitionIsCutOff(t *testing.T) {
	file := recording(t, "", nil, func(m model.Model) { must(t, m, called("one")) })
	m := load(t, file).Model(replay.Options{})
	must(t, m, called("one"))
	for _, err := range m.Stream(t.Context(), called("one")) {
		if err != nil {
			t.Error(err)
		}
		break // nobody hears the rest
	}
	if left := m.(interface{ Unplayed() []string }).Unplayed(); len(left) > 0 {
		t.Errorf("not played: %v", left)
	}
}

func TestAFaultInTextIsShownWhereItIs(t *testing.T) {
	_, err := replay.Parse("r.rec", []byte("{\"recording\": 1}\n{\"call\": 1,\n \"system\": 7, \"answer\": {\"finish\": \"stop\"}}"))
	if err == nil || !strings.Contains(err.Error(), "r.rec:3:") || !strings.Contains(err.Error(), "number of JSON cannot be system") {
		t.Errorf("got %v", err)
	}
}

// leaks is a model that says a secret, in small pieces, and fails with it.
type leaks struct{ fails bool }

func (l leaks) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	return canned.Stream(ctx, l, req)
}
func (leaks) Title() string { return "leaks" }
func (l leaks) Answer(*model.Request) (*canned.Answer, error) {
	const key = "sk-123456789"
	a := &canned.Answer{Text: "the key " + key, Reasoning: "I was given " + key, Chunk: 3, Cut: -1, Usage: &messages.Usage{}}
	a.Calls = []*messages.ToolCall{{Id: key, Name: key, Arguments: `{"k":"` + key + `"}`}}
	if l.fails {
		a.Fail = &canned.Failure{Class: model.Auth, Status: 401, Message: "wrong key " + key}
	}
	return a, nil
}

func TestASecretIsNotRecordedWhereverItComesAndInPieces(t *testing.T) {
	const key = redactor("sk-123456789")
	file := filepath.Join(t.TempDir(), "r.rec")
	r, err := replay.Open(file, key)
	if err != nil {
		t.Fatal(err)
	}
	must(t, r.Model(leaks{}, 0), called("one"))
	asked := called(string(key))
	asked.Tools[0].Schema = []byte(`{"type": "object", "description": "` + key + `"}`)
	asked.Prompt.Messages = append(asked.Prompt.Messages, result("c", string(key), "it printed "+string(key)))
	if _, err := ask(t, r.Model(leaks{fails: true}, 0), asked); err == nil {
		t.Fatal("it did not fail")
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if n := strings.Count(string(b), "[secret]"); err != nil || strings.Contains(string(b), "123456") || n != 9 {
		t.Errorf("%v, taken out %d times\n%s", err, n, b)
	}
}

// A heading, or a list, of the same name in what an agent is told is not where its folders are listed.
func TestFoldersAreFoundBelowAnotherHeadingOfTheirs(t *testing.T) {
	ask := func(m model.Model, folder string) {
		req := request("a", folder, user("look into "+folder+"/x"))
		req.Prompt.System = "# Workspaces\nWe use those of npm:\n- project: the first\n- other: the second\n" + req.Prompt.System
		must(t, m, req)
	}
	file := recording(t, "", nil, func(m model.Model) { ask(m, "/home/one/project") })
	ask(load(t, file).Model(replay.Options{}), "/srv/other")
}

// Whatever an answer says is played as it was, and the requests that follow go on from it: in the file, too.
func TestOddAnswersArePlayedAsTheyWere(t *testing.T) {
	for name, answer := range map[string]string{
		"names of ours": "⟦job.1⟧ ⟦⟦ ⟦time⟧ ⟦", "a time": "at 2026-01-02T03:04:05Z, or 2026-01-02 10:00", "line ends": "a\r\nb\r\n", "one line end": "\n", "nothing": "",
		"what JSON and HTML mind": "a\u2028b\u0000c<>&\"\\", "temporary places": "/tmp/x1. /tmp/x1/y /tmp/x1 " + filepath.Join(t.TempDir(), "q"),
	} {
		talk := func(m model.Model, folder string) (out []string) {
			ms := []*messages.Message{user("go to " + folder)}
			for range 3 {
				c := must(t, m, request("a", folder, ms...))
				out = append(out, c.Text)
				ms = append(ms, said(c), user("you say "+c.Text))
			}
			return out
		}
		file := filepath.Join(t.TempDir(), "r.rec")
		r, err := replay.Open(file, nil)
		if err != nil {
			t.Fatal(err)
		}
		was := talk(r.Model(says(func() string { return answer }), 0), "/home/one")
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if got := talk(load(t, file).Model(replay.Options{}), "/srv/other"); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", was) {
			t.Errorf("%s: got %q, was %q", name, got, was)
		}
		if b, err := os.ReadFile(file); err != nil || !strings.Contains(string(b), `"after": 2`) {
			t.Errorf("%s: the last request does not go on from the one before: %v\n%s", name, err, b)
		}
	}
}
