package chaos

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model/script"
)

// TestARemovalThatIsKilledGoesOnOrNeverWas kills `troupe rm` at random moments: afterwards the session is whole, or nothing of
// it is left. TROUPE_CHAOS_REMOVALS is how many kills must hit, TROUPE_CHAOS_SEED repeats their moments.
func TestARemovalThatIsKilledGoesOnOrNeverWas(t *testing.T) {
	kills := number(t, "TROUPE_CHAOS_REMOVALS", 6)
	seed := number(t, "TROUPE_CHAOS_SEED", int(time.Now().UnixNano()))
	t.Logf("TROUPE_CHAOS_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(uint64(seed), 2))
	m := newMachine(t)
	m.serve(gates, script.ServeOptions{})
	large := strings.Repeat("a long prompt ", 8<<10) // a blob of its own
	m.want(0, prompt("keep "+large)...)
	kept := m.session()
	id := m.removable(large, kept)
	began := time.Now()
	m.want(0, "rm", id)
	span := time.Since(began) // only the spread of the kills depends on it
	counts := map[string]int{}
	for n := 0; counts["killed"] < kills && n < 20*kills; n++ {
		at := span/3 + time.Duration(rng.Int64N(int64(span))) // before that the store is only being opened
		t.Run(fmt.Sprint(n, " ", at), func(t *testing.T) {
			m.t = t
			id := m.removable(large, kept)
			r := m.start("rm", id)
			bound := time.AfterFunc(at, func() { _ = r.cmd.Process.Kill() })
			e := r.wait()
			bound.Stop()
			if e.code > 0 {
				t.Fatalf("rm %s", e)
			}
			if e.code < 0 {
				counts["killed"]++
			}
			switch shown := m.run("run", "-s", id, "again"); {
			case shown.code == 66:
				counts["gone"]++
			case shown.code == 0 && strings.Contains(shown.out, "You said again") && e.code < 0:
				counts["whole"]++
				m.want(0, "rm", id)
			default:
				t.Errorf("after rm %s\nit %s", e, shown)
			}
			m.nothingOf(id)
			m.sound(kept)
		})
	}
	m.t = t
	t.Log(counts)
	if counts["killed"] < kills {
		t.Errorf("only %d kills hit a process under way: this shows too little", counts["killed"])
	}
}

// removable makes a session that has much to remove.
func (m *machine) removable(large, kept string) string {
	m.t.Helper()
	m.want(0, prompt("drop "+large)...)
	for _, s := range list[[]messages.SessionJSON](m, "ls", "sessions") {
		if s.ID != kept {
			if err := os.MkdirAll(m.data()+"/homes/"+s.ID, 0o700); err != nil {
				m.t.Fatal(err)
			}
			return s.ID
		}
	}
	m.t.Fatal("the session is not there")
	return ""
}

// nothingOf checks that a session is gone, with its home.
func (m *machine) nothingOf(id string) {
	m.t.Helper()
	for _, s := range list[[]messages.SessionJSON](m, "ls", "sessions") {
		if s.ID == id {
			m.t.Errorf("%s is still listed", id)
		}
	}
	for _, w := range list[[]messages.WorkerJSON](m, "ls", "workers") {
		if w.Session == id {
			m.t.Errorf("worker %s of %s is still listed", w.ID, id)
		}
	}
	m.want(66, "show", id)
	if _, err := os.Stat(m.data() + "/homes/" + id); err == nil {
		m.t.Errorf("the home of %s is left", id)
	}
}
