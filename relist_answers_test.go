package troupe_test

import (
	"context"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
)

func closeSession(id string) *messages.ToSession {
	return &messages.ToSession{SessionId: id, Command: &messages.ToSession_Close{Close: &messages.CloseSession{}}}
}

// TestAnswersOfWhatIsGoneStayListed loses the listings of a session that was closed after an answer, of one whose worker was deleted after it, of one whose
// journal was trimmed, and of one whose run still waited for a person when it was closed.
func TestAnswersOfWhatIsGoneStayListed(t *testing.T) {
	store, data, ctx := memoryOf(t), t.TempDir(), t.Context()
	options := troupe.Options{Model: writesOnce{}, Store: store, DataDir: data, Approve: func(ctx context.Context, a *troupe.Approval) troupe.Answer {
		if a.GetTool() == "pipeline" {
			<-ctx.Done()
		}
		return troupe.Answer{Decision: troupe.Approved}
	}}
	rt, err := troupe.New(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{}
	for _, name := range []string{"closed", "trimmed", "deleted"} {
		s, err := rt.Session(ctx, troupe.SessionOptions{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		ids[name] = s.ID()
		w := s.Worker
		if name == "deleted" {
			if w, err = s.NewWorker(ctx, troupe.WorkerOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if r, err := w.Run(ctx, "write it"); err != nil || r.Outcome != "done" {
			t.Fatalf("%s: %+v, %v", name, r, err)
		}
		if name == "deleted" {
			ask[*messages.Ack](t, rt, &messages.ToSession{SessionId: s.ID(), Command: &messages.ToSession_DeleteWorker{DeleteWorker: &messages.DeleteWorker{WorkerId: w.ID()}}})
			continue
		}
		ask[*messages.Ack](t, rt, closeSession(s.ID()))
	}
	run, err := rt.RunPipeline(ctx, planOf(t, "version: 1\nname: c\nsteps:\n  - {id: a, human: {message: Well?, choices: [yes, no]}}\n"), troupe.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	waiting(t, rt, run)
	ids["run"] = run.Session()
	ask[*messages.Ack](t, rt, closeSession(run.Session()))
	if err := rt.Close(ctx); err != nil {
		t.Fatal(err)
	}
	cutHead(t, store, ids["trimmed"], 2)
	want := listings(t, store)
	for name, id := range ids {
		if word := answerOf(want, id); word != map[string]string{"run": "cancelled"}[name] && word != "approved" {
			t.Errorf("the answer of %s is listed as %q: %q", name, word, want)
		}
	}
	options.Store, options.Still = loseListings(t, store, want, 0, 6), true
	if rt, err = troupe.New(ctx, options); err != nil {
		t.Fatal(err)
	}
	if err := rt.Close(ctx); err != nil {
		t.Fatal(err)
	}
	sameListings(t, listings(t, store), want)
}

// answerOf is the one answer that is listed of a session.
func answerOf(all map[string]string, session string) (word string) {
	for key, text := range all {
		if strings.HasPrefix(key, "apd/") && strings.HasSuffix(key, "/"+session) {
			word += text
		}
	}
	return word
}

// waiting waits until a run waits for a person.
func waiting(t *testing.T, rt *troupe.Runtime, run *troupe.Run) {
	t.Helper()
	for rev := uint64(0); ; {
		v, err := run.Changed(t.Context(), rev)
		if err != nil {
			t.Fatal(err)
		}
		if rev = v.GetRevision(); v.GetState() == "waiting" {
			return
		}
	}
}

// TestTheQuestionOfARunGoesWithItsSession: one that is closed asks nobody any more, and says so to who answers.
func TestTheQuestionOfARunGoesWithItsSession(t *testing.T) {
	rt, ctx := runtimeOf(t, troupe.Options{Model: writesOnce{}, DataDir: t.TempDir(), Store: memoryOf(t)})
	run, err := rt.RunPipeline(ctx, planOf(t, "version: 1\nname: c\nsteps:\n  - {id: a, human: {message: Well?, choices: [yes, no]}}\n"), troupe.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	waiting(t, rt, run)
	asked, err := rt.Approvals(ctx)
	if err != nil || len(asked) != 1 {
		t.Fatalf("%v, %v", asked, err)
	}
	ask[*messages.Ack](t, rt, closeSession(run.Session()))
	if left, err := rt.Approvals(ctx); err != nil || len(left) != 0 {
		t.Errorf("still asked: %v, %v", left, err)
	}
	wantCode(t, "answered", rt.ResolveApproval(ctx, asked[0].GetApprovalId(), troupe.Answer{Decision: troupe.Approved, Message: "yes"}), messages.CodeResolved)
}
