package troupe_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/memory"
	"github.com/troupe-dev/troupe/tools"
)

// place is a runtime with a store and a data directory of its own.
type place struct {
	*troupe.Runtime
	store *memory.Store
	data  string
}

func newPlace(t *testing.T, m troupe.Model) *place {
	t.Helper()
	p := &place{store: memoryOf(t), data: t.TempDir()}
	t.Cleanup(func() { _ = p.store.Close() })
	p.Runtime, _ = runtimeOf(t, troupe.Options{Model: m, Store: p.store, DataDir: p.data})
	return p
}

func export(t *testing.T, p *place, session string) string {
	t.Helper()
	var out bytes.Buffer
	if err := p.Export(t.Context(), session, &out); err != nil {
		t.Fatalf("export %s: %v", session, err)
	}
	return out.String()
}

func load(t *testing.T, p *place, file string, m *messages.ImportSession) *messages.Imported {
	t.Helper()
	in, err := p.ImportSession(t.Context(), strings.NewReader(file), m)
	if err != nil {
		t.Fatalf("import: %v", err)
	}
	return in
}

// modulo takes the epochs out of a file, and the sums that depend on them.
func modulo(file string) string {
	file = regexp.MustCompile(`"epoch":"?\d+"?,?`).ReplaceAllString(file, "")
	return regexp.MustCompile(`"(sum|sha256)":"[0-9a-f]+"`).ReplaceAllString(file, "")
}

// busy reads, writes and answers; everything is a function of the prompt.
func busy() say {
	return func(req *model.Request) (string, []*messages.ToolCall) {
		last := req.Prompt.Messages[len(req.Prompt.Messages)-1]
		if last.Role != messages.User {
			return "it said: " + last.Text, nil
		}
		switch {
		case strings.HasPrefix(last.Text, "read"):
			return "I look: <&> \u2028 ü", []*messages.ToolCall{call("read_file", `{"path":"a.txt"}`), call("read_file", `{"path":"b.txt"}`)}
		case strings.HasPrefix(last.Text, "edit"):
			return "", []*messages.ToolCall{call("edit_file", `{"path":"a.txt","edits":[{"old_string":"one","new_string":"two"}]}`)}
		}
		return "you said " + last.Text, nil
	}
}

func folderWith(t *testing.T, name, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// worked is a session with two workers and some turns.
func worked(t *testing.T, p *place) *troupe.Session {
	t.Helper()
	s, err := p.Session(t.Context(), troupe.SessionOptions{Dir: folderWith(t, "a.txt", "one\n"), Trust: troupe.Full, Rules: []string{"exec(go test*)"}})
	if err != nil {
		t.Fatal(err)
	}
	prompt(t, s, "read it")
	w, err := s.NewWorker(t.Context(), troupe.WorkerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	prompt(t, s, "plain \"quotes\" and \\ and \x00 zero")
	if _, err := w.Run(t.Context(), "read as well"); err != nil {
		t.Fatal(err)
	}
	prompt(t, s, strings.Repeat("long ", 20_000)) // its record's body is a blob
	return s
}

func TestAnImportedSessionIsExportedAsItWas(t *testing.T) {
	a, b := newPlace(t, busy()), newPlace(t, busy())
	s := worked(t, a)
	first := export(t, a, s.ID())
	in := load(t, b, first, &messages.ImportSession{})
	if in.GetSession().GetId() != s.ID() || in.GetClosedTurns() != 0 || in.GetIdentical() || !in.GetRestricted() {
		t.Errorf("%v", in)
	}
	if second := export(t, b, s.ID()); modulo(second) != modulo(first) {
		t.Errorf("exported again, it is another file:\n%s\n---\n%s", cutLines(first), cutLines(second))
	}
	if strings.Contains(first, a.data) {
		t.Error("the file says where the store lies")
	}
	// It runs on, and knows the file that was read there.
	got, err := b.Open(t.Context(), s.ID())
	if err != nil {
		t.Fatal(err)
	}
	if r, err := got.Wait(t.Context()); err != nil || !strings.HasPrefix(r.Text, "you said long") {
		t.Errorf("the last turn: %v %v", r, err)
	}
	if r := prompt(t, got, "and now"); r.Text != "you said and now" {
		t.Errorf("%+v", r)
	}
	h, err := got.History(t.Context())
	if err != nil || len(h.GetTurns()) != 4 {
		t.Errorf("%d turns, %v", len(h.GetTurns()), err)
	}
}

func cutLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = l[:min(len(l), 200)]
	}
	return strings.Join(lines, "\n")
}

func TestAnImportedSessionHasNoMoreTrustThanItIsGiven(t *testing.T) {
	a := newPlace(t, busy())
	s := worked(t, a)
	file := export(t, a, s.ID())
	for keep, want := range map[bool]string{false: "error", true: "ok"} {
		b := newPlace(t, busy())
		load(t, b, file, &messages.ImportSession{KeepTrust: keep})
		got, err := b.Open(t.Context(), s.ID())
		if err != nil {
			t.Fatal(err)
		}
		r := prompt(t, got, "edit it")
		if len(r.ToolCalls) != 1 || (r.ToolCalls[0].GetStatus() == "ok") != (want == "ok") {
			t.Errorf("keep %v: %v", keep, r.ToolCalls)
		}
		m, err := b.Ask(t.Context(), &messages.Show{Id: s.ID()})
		if err != nil {
			t.Fatal(err)
		}
		if trust := m.(*messages.Shown).GetSession().GetWorkspaces()[0].GetTrust(); (trust == troupe.Full) != keep {
			t.Errorf("keep %v: shown as %v", keep, trust)
		}
	}
}

func TestTheSameFileAgainChangesNothingAndAnotherOneIsRefused(t *testing.T) {
	a, b := newPlace(t, busy()), newPlace(t, busy())
	s := worked(t, a)
	file := export(t, a, s.ID())
	if in := load(t, a, file, &messages.ImportSession{}); !in.GetIdentical() {
		t.Errorf("where it comes from: %v", in)
	}
	load(t, b, file, &messages.ImportSession{})
	before := b.store.Appends()
	if in := load(t, b, file, &messages.ImportSession{}); !in.GetIdentical() || in.GetSession().GetId() != s.ID() {
		t.Errorf("%v", in)
	}
	if b.store.Appends() != before {
		t.Error("something was written")
	}
	prompt(t, s, "one more")
	longer := export(t, a, s.ID())
	refuse := func(p *place, file, want string) {
		t.Helper()
		_, err := p.ImportSession(t.Context(), strings.NewReader(file), &messages.ImportSession{})
		var f *troupe.Failure
		if !errors.As(err, &f) || f.GetCode() != messages.CodeConflict || !strings.Contains(f.Error(), want) || !strings.Contains(f.Error(), "--new-id") {
			t.Errorf("want %q: %v", want, err)
		}
	}
	refuse(b, longer, "the file has ")
	refuse(a, file, "gone on since")
	got, err := b.Open(t.Context(), s.ID())
	if err != nil {
		t.Fatal(err)
	}
	prompt(t, got, "something else")
	refuse(b, longer, "is another one")

	in := load(t, b, longer, &messages.ImportSession{NewId: true})
	id := in.GetSession().GetId()
	if id == s.ID() || in.GetOrigin() != s.ID() {
		t.Errorf("%v", in)
	}
	own := export(t, b, id)
	if strings.Contains(own, s.ID()) {
		t.Error("under new ids it still names the old session")
	}
	for _, w := range in.GetSession().GetWorkers() {
		if strings.Contains(longer, w.GetId()) {
			t.Errorf("worker %s is the old one", w.GetId())
		}
	}
	other, err := b.Open(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if r := prompt(t, other, "go on"); r.Text != "you said go on" {
		t.Errorf("%+v", r)
	}
}

// TestWhatIsOpenInAnExportIsClosedWhereItIsImported exports in the middle of a call that goes on.
func TestWhatIsOpenInAnExportIsClosedWhereItIsImported(t *testing.T) {
	came, gate := make(chan struct{}, 1), make(chan struct{})
	slow := tool(t, "slow", messages.Effect_AT_MOST_ONCE, func(*tools.Context, struct{}) (*tools.Result, error) {
		came <- struct{}{}
		<-gate
		return &tools.Result{Content: "slowly"}, nil
	})
	m := say(func(req *model.Request) (string, []*messages.ToolCall) {
		if last := req.Prompt.Messages[len(req.Prompt.Messages)-1]; last.Role == messages.User && last.Text == "work" {
			return "", []*messages.ToolCall{call("slow", `{}`)}
		}
		return "fine", nil
	})
	store := memoryOf(t)
	t.Cleanup(func() { _ = store.Close() })
	rt, ctx := runtimeOf(t, troupe.Options{Model: m, Store: store, DataDir: t.TempDir(), Tools: []troupe.Tool{slow}})
	a := &place{Runtime: rt, store: store}
	s, err := rt.Session(ctx, troupe.SessionOptions{Dir: t.TempDir(), Trust: troupe.Full})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan *troupe.Result, 1)
	go func() {
		r, err := s.Run(ctx, "work")
		if err != nil {
			t.Error(err)
		}
		done <- r
	}()
	<-came
	if _, err := rt.Ask(ctx, submitTo(s.ID(), "then this")); err != nil {
		t.Fatal(err)
	}
	file := export(t, a, s.ID())
	f, err := rt.Fork(ctx, s.ID(), troupe.ForkOptions{}) // of a session that is at work
	if err != nil {
		t.Fatal(err)
	}
	b := newPlace(t, m)
	in := load(t, b, file, &messages.ImportSession{})
	if in.GetClosedTurns() != 1 || in.GetClosedCalls() != 1 || in.GetStaged() != 1 {
		t.Errorf("%v", in)
	}
	if again := load(t, b, file, &messages.ImportSession{}); !again.GetIdentical() {
		t.Errorf("the same file again: %v", again)
	}
	close(gate)
	if r := <-done; r.Outcome != "done" || r.ToolCalls[0].GetStatus() != "ok" {
		t.Errorf("the original: %+v", r)
	}
	got, err := b.Open(ctx, s.ID())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*troupe.Session{f, got} {
		if r, err := s.Wait(ctx); err != nil || r.Text != "fine" {
			t.Errorf("the input that waited: %v %v", r, err)
		}
		h, err := s.History(ctx)
		if err != nil || len(h.GetTurns()) != 2 || !strings.HasPrefix(h.GetTurns()[0].GetMessages()[2].GetContent(), "Interrupted: ") {
			t.Errorf("%v %v", h, err)
		}
	}
}

func submitTo(session, text string) *messages.ToSession {
	return &messages.ToSession{SessionId: session, Command: &messages.ToSession_Submit{Submit: &messages.SubmitInput{
		Parts: []*messages.Part{{Kind: &messages.Part_Text{Text: text}}},
	}}}
}

// TestAFileThatIsNotAsItWasWrittenIsRefusedByItsLine: nothing is ever written of it.
func TestAFileThatIsNotAsItWasWrittenIsRefusedByItsLine(t *testing.T) {
	a, b := newPlace(t, busy()), newPlace(t, busy())
	s := worked(t, a)
	file := export(t, a, s.ID())
	lines := strings.SplitAfter(strings.TrimSuffix(file, "\n"), "\n")
	n := len(lines)
	join := func(parts ...[]string) string {
		var out []string
		for _, p := range parts {
			out = append(out, p...)
		}
		return strings.Join(out, "")
	}
	edit := func(old, with string) string {
		if !strings.Contains(file, old) {
			t.Fatalf("the file has no %q", old)
		}
		return strings.Replace(file, old, with, 1)
	}
	for what, c := range map[string]struct{ file, want string }{
		"empty":              {"", "line 1: the file ends here"},
		"not JSON":           {"hello\n", "line 1: it cannot be read"},
		"binary":             {"\xff\xfe\x00", "line 1: it is not UTF-8"},
		"another kind":       {edit(`"troupe.session"`, `"something"`), `line 1: the file is of format "something"`},
		"another version":    {edit(`"version":1`, `"version":2`), "line 1: the file is of version 2, and only 1 is known"},
		"no id":              {edit(`"session":"`+s.ID(), `"session":"../x`), `line 1: "../x" is no session id`},
		"another session":    {edit(`"session":"`+s.ID(), `"session":"ses_other`), "line 1: it is not as it was written"},
		"without a header":   {join(lines[1:]), "line 1: it is not the header"},
		"two headers":        {join(lines[:1], lines), "line 2: a second header"},
		"without a trailer":  {join(lines[:n-1]), fmt.Sprintf("line %d: the file ends here", n)},
		"cut in a line":      {file[:len(join(lines[:5]))-20], "line 5: it cannot be read: it breaks off"},
		"cut in the trailer": {file[:len(file)-3], fmt.Sprintf("line %d: it cannot be read: it breaks off", n)},
		"a line is missing":  {join(lines[:4], lines[5:]), "line 5: record 5 stands where record 4 belongs"},
		"a line twice":       {join(lines[:5], lines[4:]), "line 6: record 4 stands where record 5 belongs"},
		"two lines swapped":  {join(lines[:4], lines[5:6], lines[4:5], lines[6:]), "line 5: record 5 stands where record 4 belongs"},
		"a text is changed":  {edit("read it", "read IT"), ": it is not as it was written: its sum is"},
		"an unknown field":   {edit(`{"record":{`, `{"record":{"more":1,`), `unknown field "more"`},
		"an empty line":      {join(lines[:3], []string{"\n"}, lines[3:]), "line 4: it cannot be read: it breaks off"},
		"more at the end":    {file + "{}\n", fmt.Sprintf("line %d: there is more behind the trailer", n+1)},
		"twice":              {file + file, fmt.Sprintf("line %d: there is more behind the trailer", n+1)},
		"two on a line":      {strings.Replace(file, "}\n", "} ", 1), "line 1: it cannot be read: there is more behind its end"},
		"other counts":       {edit(`"streams":3`, `"streams":4`), fmt.Sprintf("line %d: the trailer counts 4 streams, and 3 stand before it", n)},
	} {
		refusedFile(t, b, what, c.file, c.want)
	}
	if n := b.store.Appends(); n != 0 {
		t.Errorf("%d appends were made", n)
	}
}

func refusedFile(t *testing.T, p *place, what, file, want string) {
	t.Helper()
	_, err := p.ImportSession(t.Context(), strings.NewReader(file), &messages.ImportSession{})
	var f *troupe.Failure
	if !errors.As(err, &f) || f.GetCode() != messages.CodeBadRequest || !strings.Contains(f.GetMessage(), want) {
		t.Errorf("%s: want %q: %v", what, want, err)
	}
	_, err = p.ImportSession(t.Context(), strings.NewReader(file), &messages.ImportSession{NewId: true})
	if !errors.As(err, &f) {
		t.Errorf("%s, under new ids: %v", what, err)
	}
}

// endless is a line that does not end.
type endless struct{ n int64 }

func (e *endless) Read(p []byte) (int, error) {
	if e.n <= 0 {
		return 0, io.EOF
	}
	for i := range p {
		p[i] = 'x'
	}
	e.n -= int64(len(p))
	return len(p), nil
}

func TestALineThatIsTooLongIsRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("it reads 100 MB")
	}
	p := newPlace(t, busy())
	_, err := p.ImportSession(t.Context(), io.MultiReader(strings.NewReader(`{"header":"`), &endless{100_000_000}), &messages.ImportSession{})
	if err == nil || !strings.Contains(err.Error(), "line 1: it is longer than") {
		t.Errorf("%v", err)
	}
}

// TestAnImportThatFailsHalfwayLeavesNothing lets the store fail at each append of the import.
func TestAnImportThatFailsHalfwayLeavesNothing(t *testing.T) {
	a := newPlace(t, busy())
	s := worked(t, a)
	file := export(t, a, s.ID())
	for n := int64(0); ; n++ {
		store := &fillingUp{Store: memoryOf(t), left: n}
		rt, ctx := runtimeOf(t, troupe.Options{Model: busy(), Store: store, DataDir: t.TempDir()})
		b := &place{Runtime: rt}
		_, err := b.ImportSession(ctx, strings.NewReader(file), &messages.ImportSession{})
		if err == nil {
			if n < 4 {
				t.Fatalf("%d appends are enough: this test shows nothing", n)
			}
			_ = store.Close()
			return
		}
		m, lerr := rt.Ask(ctx, &messages.ListSessions{})
		if lerr != nil || len(m.(*messages.Sessions).GetSessions()) != 0 {
			t.Errorf("after %d appends: %v %v", n, m, lerr)
		}
		for _, q := range []func() error{
			func() error { _, err := rt.Open(ctx, s.ID()); return err },
			func() error { return rt.Export(ctx, s.ID(), io.Discard) },
			func() error { _, err := rt.Fork(ctx, s.ID(), troupe.ForkOptions{}); return err },
			func() error { _, err := rt.Ask(ctx, &messages.Show{Id: s.ID()}); return err },
		} {
			if err := q(); !strings.Contains(fmt.Sprint(err), "no session") {
				t.Errorf("after %d appends something is there: %v", n, err)
			}
		}
		_ = store.Close()
	}
}

// fillingUp takes so many appends and then refuses all of them.
type fillingUp struct {
	persistence.Store
	left int64
}

func (f *fillingUp) Append(ctx context.Context, b ...persistence.Batch) (persistence.Receipt, error) {
	if f.left <= 0 {
		return persistence.Receipt{}, fmt.Errorf("no room: %w", persistence.ErrFull)
	}
	f.left--
	return f.Store.Append(ctx, b...)
}

// TestAnImportThatIsCutOffIsSweptAtTheNextStart cuts the store after each append of an import, as a crash does.
func TestAnImportThatIsCutOffIsSweptAtTheNextStart(t *testing.T) {
	a := newPlace(t, busy())
	s := worked(t, a)
	file := export(t, a, s.ID())
	b := newPlace(t, busy())
	load(t, b, file, &messages.ImportSession{})
	appends := b.store.Appends()
	if appends < 4 {
		t.Fatalf("%d appends: nothing can be cut", appends)
	}
	for n := 0; n < appends; n++ {
		cut, err := b.store.Cut(n)
		if err != nil {
			t.Fatal(err)
		}
		data := t.TempDir()
		rt, ctx := runtimeOf(t, troupe.Options{Model: busy(), Store: cut, DataDir: data})
		for _, prefix := range []string{"ses/", "wrk/", "cpy/"} {
			err := errors.Join(
				cut.Streams(ctx, prefix, func(name string) error { return fmt.Errorf("stream %s is left", name) }),
				cut.Index(ctx, prefix, func(key string, _ []byte) error { return fmt.Errorf("entry %s is left", key) }))
			if err != nil {
				t.Errorf("cut after %d of %d: %v", n, appends, err)
			}
		}
		p := &place{Runtime: rt, store: cut}
		load(t, p, file, &messages.ImportSession{})
		if again := export(t, p, s.ID()); modulo(again) != modulo(file) {
			t.Errorf("cut after %d of %d: imported again, it is another session", n, appends)
		}
		t.Cleanup(func() { _ = cut.Close() })
	}
	whole, err := b.store.Cut(appends)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = whole.Close() })
	rt, ctx := runtimeOf(t, troupe.Options{Model: busy(), Store: whole, DataDir: t.TempDir()})
	if _, err := rt.Open(ctx, s.ID()); err != nil {
		t.Errorf("a finished import was swept: %v", err)
	}
}
