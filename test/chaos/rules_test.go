package chaos

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strconv"
	"testing"

	rules "github.com/troupe-dev/troupe/internal/chaos"
)

// TestNothingIsLostWhateverIsKilled has the program kill and check itself. TROUPE_CHAOS_TURNS makes it the
// slow suite (make chaos): that many turns killed at random, 200 killed after every append, and 20 seeds. With
// TROUPE_CHAOS_EVERY it is what every commit passes (make chaos-ci): that many killed after every append, and 20 short seeds.
func TestNothingIsLostWhateverIsKilled(t *testing.T) {
	turns := number(t, "TROUPE_CHAOS_TURNS", 0)
	random, every, seeds, each := turns, 200, 20, 50
	if turns == 0 {
		random, every, seeds, each = 24, number(t, "TROUPE_CHAOS_EVERY", 0), 20, 8
		if every == 0 {
			every, seeds, each = 4, 1, 12
		}
	}
	first := number(t, "TROUPE_CHAOS_SEED", 1)
	killed(t, "random", random, first)
	killed(t, "every", every, first)
	for i := range seeds {
		killed(t, "random", each, first+1+i)
	}
}

// killed runs `troupe chaos`, which must find nothing.
func killed(t *testing.T, when string, turns, seed int) {
	t.Helper()
	t.Run(when+" "+strconv.Itoa(turns)+" turns, seed "+strconv.Itoa(seed), func(t *testing.T) {
		program, err := build()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), program, "chaos", "-o", "json",
			"--kill-at", when, "--turns", strconv.Itoa(turns), "--seed", strconv.Itoa(seed))
		cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}
		var said bytes.Buffer
		cmd.Stderr = &said
		out, runErr := cmd.Output()
		var r rules.Report
		if err := json.Unmarshal(out, &r); err != nil {
			t.Fatalf("%v: %v: %s %s", runErr, err, out, said.String())
		}
		t.Log(r.Line())
		for _, v := range r.Findings {
			t.Error(v)
		}
		if runErr != nil || r.Turns != turns || r.Kills == 0 || r.Lost+r.Duplicated+r.Violations > 0 {
			t.Errorf("the run ended with %v and %s\n%s", runErr, r.Line(), said.String())
		}
	})
}
