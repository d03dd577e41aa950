package troupe_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/troupe-dev/troupe/messages"
)

func TestAHundredPostsOfOneInputAreOneTurn(t *testing.T) {
	o := newOffice(t)
	o.token("ann", "", allScopes()...)
	v, _ := o.begin("ann") // its first turn waits for an answer: the inputs queue
	path := "/api/sessions/" + v.ID + "/inputs"
	answers := make(chan string, 100)
	var all sync.WaitGroup
	for range cap(answers) {
		all.Go(func() {
			status, text := o.do("ann", "POST", path, `{"input_id":"once","text":"again"}`)
			answers <- fmt.Sprint(status, " ", text)
		})
	}
	all.Wait()
	first := <-answers
	if !strings.HasPrefix(first, "202 ") {
		t.Fatal(first)
	}
	for range cap(answers) - 1 {
		if got := <-answers; got != first {
			t.Errorf("%s, and %s", first, got)
		}
	}
	if got := get[[]messages.StagedJSON](o, "ann", path); len(got) != 2 || got[1].ID != "once" { // behind the one that is worked on
		t.Errorf("inputs: %+v", got)
	}
	if status, text := o.do("ann", "POST", path, `{"input_id":"once","text":"something else"}`); status != 409 {
		t.Errorf("the same id with other content: %d %s", status, text)
	}
	if status, text := o.do("ann", "POST", path, `{"text":"x","mode":"reject"}`); status != 409 || !strings.Contains(text, `"busy"`) {
		t.Errorf("mode reject while a turn is open: %d %s", status, text)
	}
}

func TestAStreamThatIsCutFiftyTimesTellsEachDurableEventOnce(t *testing.T) {
	o := newOffice(t)
	o.token("ann", "", allScopes()...)
	v, asked := o.begin("ann")
	if status, text := o.do("ann", "POST", "/api/approvals/"+asked.ID, `{"decision":"approved"}`); status != 204 {
		t.Fatalf("%d %s", status, text)
	}
	for n := range 10 {
		if status, text := o.do("ann", "POST", "/api/sessions/"+v.ID+"/inputs", `{"text":"turn `+strconv.Itoa(n)+`"}`); status != 202 {
			t.Fatalf("%d %s", status, text)
		}
	}
	if status, text := o.do("ann", "GET", "/api/sessions/"+v.ID+"/idle", ""); status != 204 {
		t.Fatalf("%d %s", status, text)
	}
	whole := o.events(v.ID, 0, 1<<20)
	if len(whole) < 50 {
		t.Fatalf("%d events: cutting fifty times would show nothing", len(whole))
	}
	var seen []uint64
	cuts := 0
	for last := uint64(0); len(seen) < len(whole); cuts++ {
		part := o.events(v.ID, last, 1)
		if len(part) == 0 {
			t.Fatalf("nothing comes after %d", last)
		}
		seen = append(seen, part...)
		last = seen[len(seen)-1]
	}
	if fmt.Sprint(seen) != fmt.Sprint(whole) || cuts < 50 {
		t.Errorf("cut %d times:\n%v\nwhole:\n%v", cuts, seen, whole)
	}
}

// events reads a stream after a cursor until it has so many durable events, or one that ends the last turn, and cuts it.
func (o *office) events(session string, after uint64, n int) (seqs []uint64) {
	o.t.Helper()
	ctx, cut := context.WithCancel(o.t.Context())
	defer cut()
	req, err := http.NewRequestWithContext(ctx, "GET", o.srv.URL+"/api/sessions/"+session+"/events", http.NoBody)
	if err != nil {
		o.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer ann")
	req.Header.Set("Last-Event-ID", strconv.FormatUint(after, 10))
	res, err := o.srv.Client().Do(req)
	if err != nil || res.StatusCode != 200 {
		o.t.Fatalf("%v %v", res, err)
	}
	defer res.Body.Close()
	ended := 0
	for in := bufio.NewReader(res.Body); len(seqs) < n && ended < 11; {
		line, err := in.ReadString('\n')
		if err != nil && err != io.EOF {
			o.t.Fatal(err)
		}
		data, is := strings.CutPrefix(line, "data: ")
		if !is {
			continue
		}
		var e struct {
			Seq  uint64
			Type string
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			o.t.Fatal(err)
		}
		if e.Seq > 0 {
			seqs = append(seqs, e.Seq)
		}
		if e.Type == "turn.completed" {
			ended++
		}
	}
	return seqs
}
