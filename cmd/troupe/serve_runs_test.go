package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/messages"
)

// TestARunThatWasCutBetweenItsTurnsGoesOnWithTheNextServer has a run wait for a person when its server is killed. Its time is over afterwards, and nobody asks.
func TestARunThatWasCutBetweenItsTurnsGoesOnWithTheNextServer(t *testing.T) {
	if testing.Short() {
		t.Skip("a question that has a time of five seconds")
	}
	m := newMachine(t)
	file := m.write("p.yaml", "version: 1\nname: gate\nsteps:\n  - {id: ask, human: {message: 'Go on?', choices: [go, stop], timeout: 5s, on_timeout: stop}}\noutputs: {said: '${{ steps.ask.output }}'}\n")
	s := m.serve()
	r := m.start("pipeline", "run", file, "--server", s.url)
	m.eventually("the run waits", func() bool { return m.listedRun().State == "waiting" })
	s.signal(os.Kill)
	_, _ = s.wait()
	r.signal(os.Kill)
	_, _ = r.wait()
	if got := m.listedRun(); got.State != "waiting" { // which wakes nobody
		t.Fatalf("the run is over before its server comes back: %+v", got)
	}
	m.serve()
	m.eventually("the run ends by itself", func() bool { return m.listedRun().State == "succeeded" })
	if got := m.listedRun(); !strings.Contains(string(got.Outputs), `"stop"`) {
		t.Errorf("it came to %+v", got)
	}
}

// listedRun is the machine's one run; the zero value, when there is none yet.
func (m *machine) listedRun() (v messages.RunJSON) {
	m.t.Helper()
	_, out, _ := m.run("ls", "runs", "-o", "json")
	var all []messages.RunJSON
	if err := json.Unmarshal([]byte(out), &all); err == nil && len(all) == 1 {
		v = all[0]
	}
	return v
}
