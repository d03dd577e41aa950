package e2e

import (
	"context"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/memory"
	"github.com/troupe-dev/troupe/pipeline"
)

const debatePlan = `
version: 1
name: <b>debate</b>
agents: {pro: {system: for}, con: {system: against}}
steps:
  - {id: each, foreach: '["a","b","c"]', agent: pro, prompt: "part ${{ item }}"}
  - {id: talk, needs: [each], group: [pro, con], rounds: 1, prompt: "Tabs or spaces?"}
  - {id: sure, needs: [talk], human: {message: "Shall it end?", choices: [yes, again, no]}}
  - {id: never, needs: [sure], agent: con, prompt: "fail ${{ steps.sure.output }}"}
`

func debateModel(t *testing.T) troupe.Model {
	t.Helper()
	return scripted(t, `
  - {agent: pro, match: '^part (\w)$', reply: {text: 'Part ${1}.'}}
  - {agent: pro, match: 'Tabs or spaces', reply: {text: 'Tabs adapt.'}}
  - {agent: con, match: 'agent pro:\n> Tabs adapt', reply: {text: 'Spaces stay.'}}
  - {agent: con, match: "^fail again$", reply: {fail: {class: bad_request, message: 'I fail <i>here</i>'}}}
`)
}

// runsAreShown follows a run of a pipeline from its list to its end: steps, items, the question that one asks, why it failed; and who said what in it.
func runsAreShown(browser context.Context, t *testing.T) {
	h := newStageOf(t, troupe.Options{Model: debateModel(t)}, gateway.Options{})
	p, err := pipeline.Parse("debate.yaml", debatePlan, pipeline.Options{})
	if err != nil {
		t.Fatal(err)
	}
	x := newTab(browser, t, h.url)
	x.open("/runs")
	x.sees("No pipeline has run yet")
	run, err := h.rt.RunPipeline(h.ctx, p, troupe.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	x.click("<b>debate</b>")
	const states = `[...document.querySelectorAll('.steps > li')].map((e) => e.querySelector('.name').innerText.replace(/\s+/g, ' ')).join()`
	x.until("its steps are there, and what they have come to", states+` === 'each succeeded,talk succeeded,sure waiting,never pending'`)
	x.sees("3 of 3 items")
	x.sees("No language model is running: a script or a recording answers.")
	x.click("Items")
	x.until("the items of the step are there", `document.querySelectorAll('.steps details li').length === 3`)
	for _, colours := range []string{"light", "dark"} {
		x.shot("wide " + colours)
		x.size(360, 740, colours)
		x.wantNoOverflow()
		x.shot("narrow " + colours)
		x.size(1280, 900, "dark")
	}
	x.click("It waits for an answer")
	x.sees("Step sure of a pipeline asks")
	x.sees("Shall it end?")
	x.shot("question")
	x.click("again")
	x.sees("Nothing waits for an answer")
	x.open("/runs/" + run.ID())
	x.until("it has failed, and says why", states+` === 'each succeeded,talk succeeded,sure succeeded,never failed' && document.body.innerText.includes('I fail <i>here</i>')`)
	x.shot("failed")
	x.click("Try again what has not succeeded")
	x.until("it has failed again", `document.querySelector('main > .meta .state')?.innerText === 'failed'`)
	x.click("session")
	x.until("each line is its member's", `['pro · ', 'con · '].every((who, i) => [...document.querySelectorAll('.said.model h3')].some((e) => e.innerText.startsWith(who) && e.parentElement.innerText.includes(['Tabs adapt.', 'Spaces stay.'][i])))`)
	x.until("what others said is the conversation's word, the prompts are the run's, and nothing is mine", `[...document.querySelectorAll('.said.agent h3')].some((e) => e.innerText.startsWith('Conversation talk')) && [...document.querySelectorAll('.said.agent h3')].some((e) => e.innerText.startsWith('Run')) && !document.querySelector('.said.user')`)
	x.shot("transcript")
	x.click("Conversations")
	x.until("it is told in turns, with who spoke", `[...document.querySelectorAll('.said')].map((e) => e.querySelector('h3').innerText.split(' ')[0] + ': ' + e.querySelector('pre').innerText).slice(-2).join() === 'pro: Tabs adapt.,con: Spaces stay.'`)
	if status := value[int](x, `fetch('/api`+"/sessions/"+run.Session()+`/conversations/talk/words', {method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify({text: 'Enough <b>now</b>.', by: 'ann'})}).then((r) => r.status)`); status != 201 {
		t.Errorf("a word from outside: %d", status)
	}
	x.until("what is said is added, once, and as somebody's from outside", `[...document.querySelectorAll('.said')].map((e) => e.innerText.replace(/\s+/g, ' ')).filter((s) => s.startsWith('From outside (ann) 3') && s.endsWith('Enough <b>now</b>.')).length === 1 && document.querySelectorAll('.said').length === 3`)
	x.shot("talk")
	x.size(360, 740, "light")
	x.wantNoOverflow()
	x.shot("talk narrow")
}

// damaged is a store that was opened without a part of what it held.
type damaged struct {
	persistence.Store
	found []persistence.Finding
}

func (d damaged) Damage(context.Context) ([]persistence.Finding, error) { return d.found, nil }

// damageIsTold says above every page what is missing, and what to do.
func damageIsTold(browser context.Context, t *testing.T) {
	store := memory.New()
	t.Cleanup(func() { _ = store.Close() })
	found := []persistence.Finding{{Stream: "ses/ses_lost", Seq: 3, Problem: "has lost <b>records</b> \u202egnp"}}
	for range 14 {
		found = append(found, persistence.Finding{Problem: "a listing is short " + strings.Repeat("of this and that ", 20)})
	}
	h := newStageOf(t, troupe.Options{Store: damaged{store, found}, DataDir: t.TempDir(), Model: scripted(t, "\n  - reply: {text: hello}\n")}, gateway.Options{})
	s, _ := h.session(troupe.SessionOptions{}, nil)
	x := newTab(browser, t, h.url)
	for _, path := range []string{"/", "/sessions/" + s.ID(), "/approvals", "/workers", "/runs"} {
		x.open(path)
		x.sees("The store is damaged")
		x.sees("troupe repair")
	}
	x.click("What is missing: 15 parts")
	x.sees("ses/ses_lost record 3 has lost <b>records</b> U+202Egnp")
	x.sees("and 5 more")
	x.shot("wide")
	x.size(360, 740, "dark")
	x.wantNoOverflow()
	x.shot("narrow")
	sound := newStage(t, "\n  - reply: {text: hello}\n", gateway.Options{})
	if d, err := sound.rt.Ask(sound.ctx, &messages.ListDamage{}); err != nil || len(d.(*messages.Damage).GetFindings()) != 0 { //nolint:forcetypeassert // the reply of ListDamage
		t.Fatalf("%v %v", d, err)
	}
	y := newTab(browser, t, sound.url)
	y.open("/")
	y.sees("There is no session yet")
	y.until("nothing is said of a store that is sound", `!document.querySelector('.damage')`)
}
