package troupe_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe"
)

// TestAStreamThatIsCutAnywhereWhileTurnsRunMissesNothing cuts a live stream after any number of bytes, in the middle of lines too, and goes on behind the last event
// that came whole.
func TestAStreamThatIsCutAnywhereWhileTurnsRunMissesNothing(t *testing.T) {
	o := officeIn(t, t.TempDir(), troupe.Options{Model: echo()})
	o.token("ann", "a", "read", "prompt")
	status, text := o.do("ann", "POST", "/api/sessions", "{}")
	var v struct{ ID string }
	if err := json.Unmarshal([]byte(text), &v); err != nil || status != 201 {
		t.Fatalf("%d %s", status, text)
	}
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // where to cut
	var seen []uint64
	cuts, ended, asked := 0, 0, 0
	for last := uint64(0); ended < asked || cuts < 60; cuts++ {
		if cuts < 60 { // the turn runs while the stream is read
			if status, text := o.do("ann", "POST", "/api/sessions/"+v.ID+"/inputs", `{"text":"turn `+strconv.Itoa(cuts)+`"}`); status != 202 {
				t.Fatalf("%d %s", status, text)
			}
			asked++
		}
		if cuts > 5000 {
			t.Fatalf("seed %d: after %d cuts %d of %d turns have ended", seed, cuts, ended, asked)
		}
		for e := range strings.SplitSeq(o.head(v.ID, last, 200+random.IntN(4000)), "\n\n") {
			id, is := strings.CutPrefix(e, "id: ")
			if !is {
				continue
			}
			id, _, _ = strings.Cut(id, "\n")
			seq, err := strconv.ParseUint(id, 10, 64)
			if err != nil {
				t.Fatalf("%q: %v", e, err)
			}
			seen, last = append(seen, seq), seq
			if strings.Contains(e, `"type":"turn.completed"`) {
				ended++
			}
		}
	}
	var durable []uint64
	for e, err := range o.rt.Events(t.Context(), v.ID, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.GetSeq() > 0 {
			durable = append(durable, e.GetSeq())
		}
		if e.GetSeq() == seen[len(seen)-1] {
			break
		}
	}
	if !slices.Equal(seen, durable) || ended != asked {
		t.Errorf("seed %d, %d turns of %d, seen:\n%v\nin the journal:\n%v", seed, ended, asked, seen, durable)
	}
}

// head is what comes of a stream until it is cut, without the part of an event at its end.
func (o *office) head(session string, after uint64, size int) string {
	o.t.Helper()
	ctx, cut := context.WithCancel(o.t.Context())
	defer cut()
	req, err := http.NewRequestWithContext(ctx, "GET", o.srv.URL+"/api/sessions/"+session+"/events?after="+strconv.FormatUint(after, 10), http.NoBody)
	if err != nil {
		o.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer ann")
	res, err := o.srv.Client().Do(req)
	if err != nil || res.StatusCode != http.StatusOK {
		o.t.Fatalf("%v %v", res, err)
	}
	defer res.Body.Close()
	part := make([]byte, size)
	read := 0
	for read < size && !bytes.Contains(part[:read], []byte("turn.completed")) { // there may be nothing behind it
		n, err := res.Body.Read(part[read:])
		if read += n; err == io.EOF {
			break
		} else if err != nil {
			o.t.Fatal(err)
		}
	}
	whole := bytes.LastIndex(part[:read], []byte("\n\n"))
	return string(part[:max(whole, 0)])
}
