package e2e

import (
	"context"
	"testing"

	"github.com/troupe-dev/troupe/gateway"
)

// TestTheConsoleInABrowser holds all that needs one: they share it, as starting it takes longer than most of them.
func TestTheConsoleInABrowser(t *testing.T) {
	browser := startBrowser(t)
	for name, claim := range map[string]func(context.Context, *testing.T){
		"a call is approved, rejected or cancelled, by button and by key": callsAreAnswered,
		"an answer holds for its scope":                                   answersAreRemembered,
		"many questions stay usable":                                      manyQuestions,
		"text comes as it is written, over a lost connection":             textStreams,
		"hostile text is text":                                            hostileText,
		"fields are edited by their schema":                               fieldsAreEdited,
		"files are put, read and deleted":                                 filesAreKept,
		"a thousand sessions are found by filters in the address":         manySessions,
		"a list that has not changed is not sent again, and stays":        listsStay,
		"a session is begun, and stopped":                                 sessionsAreBegun,
		"a call in doubt is settled":                                      doubtIsSettled,
		"a long session opens at its end":                                 longSession,
		"a server with tokens asks for one":                               tokensAreAsked,
		"what was changed in a copy is seen, and brought back":            copiesAreApplied,
		"a budget is seen, and raised":                                    budgetsAreRaised,
		"who works for whom is seen, and who stands in":                   treesAreShown,
		"nothing stands in the way of anybody":                            nothingInTheWay,
		"nothing stands in the way of who looks at runs":                  nothingInTheWayOfRuns,
		"a server that stops is outlived, and what it cut off is marked":  stopsAreSeen,
		"a server that is killed is outlived":                             killsAreSeen,
		"what a stop left of an answer is shown":                          partsAreKept,
		"an input stands where it joined the turn":                        inputsJoin,
		"commands in the background are seen, and ended":                  jobsAreEnded,
		"one command in the background is ended, with the keyboard":       oneJobIsEnded,
		"commands that end unseen are not told any more":                  jobsEndUnseen,
		"events that are gone are told":                                   trimmedEventsAreTold,
		"time passes":                                                     timePasses,
		"a hundred thousand lines stay usable":                            longTexts,
		"a call travels to another machine when a person says so":         callsTravel,
		"of two answers the first counts, and the other one hears of it":  othersAnswer,
		"a question that is over goes, and says so":                       questionsEnd,
		"an end is told as the next question comes":                       endsAreTold,
		"a name makes no question of a call":                              namesDeceiveNobody,
		"a token that is revoked ends the page":                           tokensEnd,
		"the keyboard is enough":                                          keysSuffice,
		"a run is followed, and who said what in it":                      runsAreShown,
		"what the store has lost is told":                                 damageIsTold,
	} {
		t.Run(name, func(t *testing.T) { claim(browser, t) })
	}
}

// TestTheConsolesWatchersSeeWhatTheyWatchFor: without it, the other tests could see nothing and pass.
func TestTheConsolesWatchersSeeWhatTheyWatchFor(t *testing.T) {
	h := newStage(t, "\n  - reply: {text: hello}\n", gateway.Options{})
	x := newTab(startBrowser(t), t, h.url)
	x.open("/")
	x.until("an inline script was tried", `(() => { const s = document.createElement('div'); try { s.setAttribute('onclick', 'window.ran = true'); } catch { return true; } return false; })()`)
	x.until("markup was tried", `(() => { try { document.body.innerHTML = '<b>bold</b>'; } catch { return true; } return false; })()`)
	x.until("another origin was asked", `fetch('http://127.0.0.1:1/').then(() => true, () => true)`)
	x.until("something was thrown", `(setTimeout(() => { throw new Error('on purpose'); }), true)`)
	x.until("the policy was heard of", `window.stopped.length >= 3`)
	if value[bool](x, `!!window.ran`) {
		t.Error("an inline handler ran")
	}
	stopped := value[[]string](x, `window.stopped.splice(0)`)
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(stopped) < 3 || len(x.problems) != 1 {
		t.Errorf("stopped %q, outside %q, thrown %q", stopped, x.outside, x.problems)
	}
	x.outside, x.problems = nil, nil
}
