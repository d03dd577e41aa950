package client_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/client"
	"github.com/troupe-dev/troupe/messages"
)

func said() *messages.ToSession {
	return &messages.ToSession{SessionId: "ses_1", Command: &messages.ToSession_Submit{Submit: &messages.SubmitInput{Parts: []*messages.Part{{Kind: &messages.Part_Text{Text: "said"}}}}}}
}

// askedOf are questions, and whether each may be sent again when nobody knows whether it was done.
func askedOf() map[string]struct {
	m     proto.Message
	again bool
} {
	type asked = struct {
		m     proto.Message
		again bool
	}
	return map[string]asked{
		"a list":       {&messages.ListApprovals{}, true},
		"an input":     {said(), true},
		"a check":      {&messages.Verify{}, true},
		"more budget":  {&messages.ToSession{SessionId: "ses_1", Command: &messages.ToSession_AddBudget{AddBudget: &messages.AddBudget{Add: &messages.Amounts{Tokens: 1}}}}, true},
		"a session":    {&messages.CreateSession{}, false},
		"a fork":       {&messages.ForkSession{SessionId: "ses_1"}, false},
		"a cancel":     {&messages.ToSession{SessionId: "ses_1", Command: &messages.ToSession_Cancel{Cancel: &messages.CancelSession{}}}, false},
		"a job's end":  {&messages.ToSession{SessionId: "ses_1", Command: &messages.ToSession_EndJob{EndJob: &messages.EndJob{JobId: "job_1"}}}, false},
		"an answer":    {&messages.ResolveApproval{ApprovalId: "app_1", Decision: messages.Decision_APPROVED}, false},
		"an edit":      {&messages.ToSession{SessionId: "ses_1", Command: &messages.ToSession_SetField{SetField: &messages.SetField{Field: "f", Value: "1"}}}, true},
		"a file":       {&messages.ToSession{SessionId: "ses_1", Command: &messages.ToSession_UseFile{UseFile: &messages.UseFile{Path: "a", Action: messages.UseFile_PUT, Data: []byte("x")}}}, false},
		"what is left": {&messages.RevokeToken{Name: "t"}, false},
	}
}

// TestOnlyWhatIsDoneOnceIsSentAgainWhenItsConnectionBreaks has a server that cuts the first two requests off, and one that goes away.
func TestOnlyWhatIsDoneOnceIsSentAgainWhenItsConnectionBreaks(t *testing.T) {
	for _, how := range []string{"cut", "in the middle", "refused", "refused by who stands before it"} {
		for what, q := range askedOf() {
			t.Run(how+"/"+what, func(t *testing.T) {
				dir := t.TempDir()
				var sent atomic.Int32
				var bodies [3]string
				hold(t, dir, func(w http.ResponseWriter, r *http.Request) {
					n := sent.Add(1)
					body, _ := io.ReadAll(r.Body)
					bodies[min(n-1, 2)] = string(body)
					switch {
					case n > 2:
						fmt.Fprint(w, map[bool]string{true: "[]", false: "{}"}[r.Method == http.MethodGet])
					case how == "cut":
						panic(http.ErrAbortHandler)
					case how == "in the middle":
						w.Header().Set("Content-Length", "100")
						fmt.Fprint(w, "{")
						panic(http.ErrAbortHandler)
					case how == "refused":
						w.Header().Set("Content-Type", messages.ProblemType)
						w.Header().Set("Retry-After", "1")
						w.WriteHeader(http.StatusServiceUnavailable)
						fmt.Fprint(w, `{"code":"unavailable","detail":"the server is stopping","retry_after_ms":1}`)
					default:
						w.WriteHeader(http.StatusServiceUnavailable)
					}
				})
				_, err := dial(t, dir).Ask(t.Context(), q.m)
				switch n := sent.Load(); {
				case q.again && (err != nil || n != 3 || bodies[0] != bodies[2]):
					t.Errorf("sent %d times, %q: %v", n, bodies, err)
				case !q.again && (err == nil || n != 1):
					t.Errorf("sent %d times: %v", n, err)
				}
			})
		}
	}
}

// TestWhatNobodyGotIsSentToTheServerThatComesBack: also what must not be done twice, as there was nobody to do it.
func TestWhatNobodyGotIsSentToTheServerThatComesBack(t *testing.T) {
	for what, q := range askedOf() {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			answer := func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprint(w, map[bool]string{true: "[]", false: "{}"}[r.Method == http.MethodGet])
			}
			stop := hold(t, dir, answer)
			c := dial(t, dir)
			stop()
			c.Forget()
			done := make(chan error, 1)
			go func() {
				_, err := c.Ask(t.Context(), q.m)
				done <- err
			}()
			<-time.After(20 * time.Millisecond) // it is away for a while; what is true does not depend on it
			hold(t, dir, answer)
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestWhatTookLongerThanPatienceOutlivesARestart: only the time counts for which the server is away.
func TestWhatTookLongerThanPatienceOutlivesARestart(t *testing.T) {
	for _, how := range []string{"cut", "refused"} {
		dir := t.TempDir()
		var sent atomic.Int32
		hold(t, dir, func(w http.ResponseWriter, _ *http.Request) {
			if sent.Add(1) > 1 {
				fmt.Fprint(w, "{}")
				return
			}
			<-time.After(300 * time.Millisecond) // the turn is long
			if how == "cut" {
				panic(http.ErrAbortHandler)
			}
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		c := dial(t, dir)
		c.Patience(200 * time.Millisecond)
		c.Forget() // net/http sends what came by a kept connection again by itself
		_, err := c.Ask(t.Context(), &messages.ToSession{SessionId: "ses_1", Command: &messages.ToSession_AwaitTurn{AwaitTurn: &messages.AwaitTurn{InputId: "i"}}})
		if err != nil || sent.Load() != 2 {
			t.Errorf("%s: sent %d times: %v", how, sent.Load(), err)
		}
	}
}

// TestASecondRestartWithinOneWaitIsOutlivedLikeTheFirst: what counts is for how long the server is away this time.
func TestASecondRestartWithinOneWaitIsOutlivedLikeTheFirst(t *testing.T) {
	for _, how := range []string{"cut", "refused"} {
		dir := t.TempDir()
		var sent atomic.Int32
		hold(t, dir, func(w http.ResponseWriter, _ *http.Request) {
			n := sent.Add(1)
			if n > 5 {
				fmt.Fprint(w, "{}")
				return
			}
			if how == "refused" && n%2 == 0 { // it is away: who stands before it says so
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			<-time.After(400 * time.Millisecond) // the turn is long
			if how == "cut" {
				panic(http.ErrAbortHandler)
			}
			w.Header().Set("Content-Type", messages.ProblemType)
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"code":"unavailable","detail":"the server is stopping"}`)
		})
		c := dial(t, dir)
		c.Patience(600 * time.Millisecond)
		c.Forget()
		_, err := c.Ask(t.Context(), &messages.ToSession{SessionId: "ses_1", Command: &messages.ToSession_AwaitTurn{AwaitTurn: &messages.AwaitTurn{InputId: "i"}}})
		if err != nil || sent.Load() != 6 {
			t.Errorf("%s: sent %d times: %v", how, sent.Load(), err)
		}
	}
}

// TestAServerThatIsThereAndAlwaysRefusesIsToldOf: a worker of it hangs, say, and it looks for a second each time before it says so.
func TestAServerThatIsThereAndAlwaysRefusesIsToldOf(t *testing.T) {
	dir := t.TempDir()
	var sent atomic.Int32
	hold(t, dir, func(w http.ResponseWriter, _ *http.Request) {
		if sent.Add(1) > 5 {
			fmt.Fprint(w, "{}")
			return
		}
		<-time.After(150 * time.Millisecond)
		w.Header().Set("Content-Type", messages.ProblemType)
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `{"code":"unavailable","detail":"not all workers answered"}`)
	})
	c := dial(t, dir)
	c.Patience(200 * time.Millisecond)
	_, err := c.Ask(t.Context(), &messages.ToSession{SessionId: "ses_1", Command: &messages.ToSession_CountJobs{CountJobs: &messages.CountJobs{}}})
	var f *messages.Failure
	if !errors.As(err, &f) || f.GetCode() != messages.CodeUnavailable || sent.Load() > 3 {
		t.Errorf("sent %d times: %v", sent.Load(), err)
	}
}

// TestAServerThatSaidNotSoSoonWasThere: it goes away after that, and what counts is since when it does.
func TestAServerThatSaidNotSoSoonWasThere(t *testing.T) {
	for _, what := range []string{"a question", "a stream"} {
		dir := t.TempDir()
		var sent atomic.Int32
		first := int32(1)
		if what == "a stream" {
			first = 2
		}
		hold(t, dir, func(w http.ResponseWriter, _ *http.Request) {
			n := sent.Add(1) - first
			switch {
			case n < 0, n > 1:
				if what == "a stream" {
					w.Header().Set("Content-Type", "text/event-stream")
					fmt.Fprint(w, sse(int(n+2)))
					return
				}
				fmt.Fprint(w, "{}")
			case n == 0:
				w.Header().Set("Content-Type", messages.ProblemType)
				w.WriteHeader(http.StatusTooManyRequests)
				fmt.Fprint(w, `{"code":"rate_limited","detail":"too many","retry_after_ms":400}`)
			default:
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})
		c := dial(t, dir)
		c.Patience(300 * time.Millisecond)
		c.Forget()
		var err error
		if what == "a stream" {
			for e, broken := range c.Events(t.Context(), "ses_1", 0) {
				if err = broken; e.GetSeq() > 1 {
					break
				}
			}
		} else {
			_, err = c.Ask(t.Context(), said())
		}
		if err != nil {
			t.Errorf("%s: sent %d times: %v", what, sent.Load(), err)
		}
	}
}

// TestTriesWhileTheServerIsAwayAreNoneThatCameTooSoon: when it is back, all that waited for it come at once.
func TestTriesWhileTheServerIsAwayAreNoneThatCameTooSoon(t *testing.T) {
	dir := t.TempDir()
	var sent atomic.Int32
	hold(t, dir, func(w http.ResponseWriter, _ *http.Request) {
		switch n := sent.Add(1); {
		case n <= 4:
			w.WriteHeader(http.StatusServiceUnavailable)
		case n <= 8:
			w.Header().Set("Content-Type", messages.ProblemType)
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(w, `{"code":"rate_limited","detail":"too many"}`)
		default:
			fmt.Fprint(w, "{}")
		}
	})
	if _, err := dial(t, dir).Ask(t.Context(), said()); err != nil || sent.Load() != 9 {
		t.Errorf("sent %d times: %v", sent.Load(), err)
	}
}

// TestWhoStandsBeforeTheServerIsNotTakenForIt: it answers slowly, for as long as it is asked.
func TestWhoStandsBeforeTheServerIsNotTakenForIt(t *testing.T) {
	dir := t.TempDir()
	var sent atomic.Int32
	hold(t, dir, func(w http.ResponseWriter, _ *http.Request) {
		sent.Add(1)
		<-time.After(40 * time.Millisecond)
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	c := dial(t, dir)
	c.Patience(200 * time.Millisecond)
	_, err := c.Ask(t.Context(), said())
	var f *messages.Failure
	if !errors.As(err, &f) || f.GetCode() != messages.CodeUnavailable || sent.Load() > 4 {
		t.Errorf("sent %d times: %v", sent.Load(), err)
	}
}

func TestAServerThatStaysAwayIsToldOfInTheEnd(t *testing.T) {
	dir := t.TempDir()
	stop := hold(t, dir, func(http.ResponseWriter, *http.Request) {})
	c := dial(t, dir)
	c.Patience(60 * time.Millisecond)
	stop()
	if _, err := c.Ask(t.Context(), said()); !errors.Is(err, client.ErrNoHolder) {
		t.Errorf("got %v", err)
	}
	c.Patience(time.Hour)
	done := make(chan error, 1)
	go func() {
		_, err := c.Ask(t.Context(), said())
		done <- err
	}()
	c.Close()
	if err := <-done; !errors.Is(err, client.ErrClosed) {
		t.Errorf("closed meanwhile: %v", err)
	}
}

func TestAServerThatAsksForTooMuchPatienceIsNotWaitedFor(t *testing.T) {
	dir := t.TempDir()
	var sent atomic.Int32
	hold(t, dir, func(w http.ResponseWriter, _ *http.Request) {
		sent.Add(1)
		w.Header().Set("Content-Type", messages.ProblemType)
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprint(w, `{"code":"rate_limited","detail":"too many","retry_after_ms":9223372036854775807}`)
	})
	_, err := dial(t, dir).Ask(t.Context(), said())
	if err == nil || !strings.Contains(err.Error(), "too many") || sent.Load() != 1 {
		t.Errorf("sent %d times: %v", sent.Load(), err)
	}
}
