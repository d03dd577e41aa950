package e2e

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
)

const shelf = `{"type":"object","required":["owner"],"properties":{
"status":{"type":"string","enum":["idle","in_progress","done"],"default":"idle","x-editable":true,"description":"How far the work is. <b>Not bold.</b>"},
"owner":{"type":"string","minLength":3,"default":"nobody","x-editable":true},
"count":{"type":"integer","x-editable":true,"maximum":10},
"urgent":{"type":"boolean","x-editable":true},
"tags":{"type":"array","items":{"type":"string"},"x-editable":true},
"build":{"type":"integer"},
"line":{"type":"string","x-derive":{"template":"{owner}: {status}"}}}}`

func fieldsAreEdited(browser context.Context, t *testing.T) {
	h := newStage(t, "\n  - reply: {text: hello}\n", gateway.Options{})
	s, _ := h.session(troupe.SessionOptions{Fields: shelf}, nil)
	x := newTab(browser, t, h.url)
	x.open("/sessions/" + s.ID() + "/fields")
	x.sees("Not bold.</b>")
	form := func(name string) string { return `form[aria-label="field ` + name + `"]` }
	save := func(name string) {
		t.Helper()
		x.do("save "+name, chromedp.Click(chromedp.CSS(form(name)+" button.main")))
	}
	choose := func(name, value string) {
		t.Helper()
		x.until("it is chosen", `((s) => { s.selectedIndex = [...s.options].findIndex((o) => o.text === '`+value+`'); return s.dispatchEvent(new Event('change', {bubbles: true})); })(document.querySelector('`+form(name)+` select'))`)
	}
	choose("status", "in_progress")
	save("status")
	x.sees("nobody: in_progress") // what follows from it, too
	x.want(s, "status", `"in_progress"`)

	choose("urgent", "true")
	save("urgent")
	x.until("it is saved", `document.querySelector('`+form("urgent")+`').innerText.includes('Saved.')`)
	x.want(s, "urgent", `true`)
	x.typeInto(form("count")+" input", "7")
	save("count")
	x.until("it is saved", `document.querySelector('`+form("count")+`').innerText.includes('Saved.')`)
	x.want(s, "count", `7`)
	x.typeInto(form("tags")+" textarea", `["a", 1]`)
	save("tags")
	x.sees("does not take this value")
	x.typeInto(form("tags")+" textarea", "\b\b\b\"b\"]")
	save("tags")
	x.until("it is saved", `document.querySelector('`+form("tags")+`').innerText.includes('Saved.')`)
	x.want(s, "tags", `["a","b"]`)

	// The schema's own text, and then somebody else is faster.
	x.typeInto(form("owner")+" input", strings.Repeat("\b", len("nobody"))+"me")
	save("owner")
	x.sees("minLength")
	x.shot("refused")
	if _, err := s.SetField(h.ctx, troupe.FieldEdit{Field: "owner", Value: "somebody"}); err != nil {
		t.Fatal(err)
	}
	x.typeInto(form("owner")+" input", "lissa")
	save("owner")
	x.sees("Somebody changed the fields meanwhile")
	x.until("what is there now is shown", `document.querySelector('`+form("owner")+`').innerText.includes('somebody')`)
	save("owner")
	x.until("it is saved", `document.querySelector('`+form("owner")+`').innerText.includes('Saved.')`)
	x.want(s, "owner", `"melissa"`)
	x.do("clear", chromedp.Click(chromedp.CSS(form("status")+" .answers button:nth-of-type(2)")))
	x.sees("melissa: idle")

	// Two of one's own, the second as soon as the page says that the first is saved.
	value[bool](x, `(input => (input.focus(), input.setSelectionRange(0, 0), true))(document.querySelector('`+form("owner")+` input'))`)
	x.typeInto(form("owner")+" input", "two ")
	value[bool](x, `new Promise((done) => {
		const form = document.querySelector('`+form("owner")+`');
		const look = () => {
			if (!form.innerText.includes('Saved.')) return;
			watch.disconnect();
			document.querySelector('`+form("count")+` .answers button:nth-of-type(2)').click();
			done(true);
		};
		const watch = new MutationObserver(look);
		watch.observe(form, { childList: true, subtree: true, characterData: true });
		form.querySelector('button[type=submit]').click();
	})`)
	x.until("the second is saved, too", `document.querySelector('`+form("count")+`').innerText.includes('Saved.') && document.querySelector('`+form("count")+` input').value === ''`)
	x.want(s, "owner", `"two melissa"`)
	if n := value[int](x, `document.querySelectorAll('`+form("build")+` :is(input, button), `+form("line")+` :is(input, button)').length`); n != 0 {
		t.Errorf("what is not editable has %d controls", n)
	}
	x.size(360, 740, "dark")
	x.wantNoOverflow()
	x.shot("narrow")
}

// want holds a field to its value.
func (x *tab) want(s *troupe.Session, name, value string) {
	x.t.Helper()
	v, err := s.Fields(x.t.Context(), "")
	if err != nil {
		x.t.Fatal(err)
	}
	i := slices.IndexFunc(v.GetFields(), func(f *messages.FieldView) bool { return f.GetName() == name })
	if i < 0 || v.GetFields()[i].GetValue() != value {
		x.t.Errorf("%s: %v, want %s", name, v.GetFields(), value)
	}
}

func filesAreKept(browser context.Context, t *testing.T) {
	h := newStage(t, "\n  - reply: {text: hello}\n", gateway.Options{})
	s, _ := h.session(troupe.SessionOptions{}, nil)
	note := filepath.Join(t.TempDir(), "<b>note.txt")
	if err := os.WriteFile(note, []byte("remember <script>window.pwned=1</script>\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	use := func(m *messages.UseFile) *messages.Files {
		t.Helper()
		r, err := h.rt.Ask(h.ctx, &messages.ToSession{SessionId: s.ID(), Command: &messages.ToSession_UseFile{UseFile: m}})
		if err != nil {
			t.Fatal(err)
		}
		return r.(*messages.Files)
	}
	x := newTab(browser, t, h.url)
	x.open("/sessions/" + s.ID() + "/files")
	x.sees("keeps no files yet")
	x.do("put a file", chromedp.SetUploadFiles(chromedp.CSS("input[type=file]"), []string{note}))
	x.click("<b>note.txt")
	x.sees("remember <script>")
	if all := use(&messages.UseFile{}).GetEntries(); len(all) != 1 || all[0].GetPath() != "<b>note.txt" {
		t.Errorf("%v", all)
	}
	for _, name := range []string{"deep/one.txt", "deep/bin"} {
		use(&messages.UseFile{Action: messages.UseFile_PUT, Path: name, Data: []byte("\x00\x01")})
	}
	x.click("deep/bin")
	x.sees("This is no text")
	x.typeInto("input[type=search]", "note")
	x.until("the address has the filter", `location.search === '?q=note' && document.querySelectorAll('.file').length === 1`)
	x.click("Delete")
	x.click("Delete for good")
	x.sees("No file matches")
	if all := use(&messages.UseFile{}).GetEntries(); slices.ContainsFunc(all, func(f *messages.FileEntry) bool { return f.GetPath() == "<b>note.txt" }) {
		t.Errorf("%v", all)
	}
	x.open("/sessions/" + s.ID() + "/files")
	x.sees("deep/one.txt")
	x.size(360, 740, "light")
	x.wantNoOverflow()
	x.shot("narrow")
}
