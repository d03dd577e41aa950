package tools

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/workspace"
)

//go:embed job_output.md
var jobOutputDoc string

// maxJobWait is how long a call may wait for more output.
const maxJobWait = 60 * time.Second

// JobOutput is the tool that shows what a job has printed. The caller keeps the place: the tool changes nothing.
func JobOutput() Tool {
	return &jobTool[jobOutputArgs]{run: jobOutput, spec: &Spec{
		Name: "job_output", Description: jobOutputDoc, Effect: messages.Effect_PURE, NoWorkspace: true, Timeout: maxJobWait + 15*time.Second,
		Schema: json.RawMessage(`{
"type":"object","additionalProperties":false,"required":["job_id"],"properties":{
"job_id":{"type":"string","minLength":1,"maxLength":100,"description":"The job, as exec named it."},
"byte_offset":{"type":"integer","minimum":0,"description":"Where to begin: what the last result named (default: the beginning of what is kept)."},
"wait_ms":{"type":"integer","minimum":0,"maximum":60000,"description":"Milliseconds to wait until there is something to show, or the job has ended (default 0)."},
` + workspaceArg + `}}`),
	}}
}

type jobOutputArgs struct {
	JobID     string `json:"job_id"`
	Offset    int64  `json:"byte_offset"`
	WaitMS    int64  `json:"wait_ms"`
	Workspace string `json:"workspace_id"`
}

// jobTool is a tool about the jobs of the calling agent.
type jobTool[A any] struct {
	spec *Spec
	run  func(ctx context.Context, tc *Context, a A) (*Result, error)
}

// Spec implements Tool.
func (t *jobTool[A]) Spec() *Spec { return t.spec }

// Run implements Tool.
func (t *jobTool[A]) Run(tc *Context, args json.RawMessage) (*Result, error) {
	var a A
	if err := Decode(t.spec, args, &a); err != nil {
		return nil, err
	}
	ctx := tc.Signal
	if ctx == nil {
		ctx = context.Background()
	}
	return t.run(ctx, tc, a)
}

func jobOutput(ctx context.Context, tc *Context, a jobOutputArgs) (*Result, error) {
	j := tc.Jobs.find(a.JobID)
	if j == nil {
		return leftOutput(tc, a, "it is no more: what it had printed was kept", map[string]any{"job_id": a.JobID, "state": jobGone})
	}
	if err := j.await(ctx, a.Offset, time.Duration(a.WaitMS)*time.Millisecond); err != nil {
		return nil, err
	}
	_, note := j.state()
	meta := j.meta()
	j.mu.Lock()
	text, dropped, left := string(j.kept), j.dropped, j.away != nil && j.away.left
	j.mu.Unlock()
	if left {
		return leftOutput(tc, a, note, meta)
	}
	return part(text, dropped, a.Offset, note, meta), nil
}

// notKept stands before what is left of a long output.
const notKept = "[the first %d bytes are not kept]\n"

// part shows a text from an offset on, which counts from the beginning of all that was printed.
func part(text string, dropped, offset int64, note string, meta map[string]any) *Result {
	from := int(min(max(0, offset-dropped), int64(len(text))))
	for from < len(text) && !utf8.RuneStart(text[from]) {
		from++
	}
	shown := text[from:]
	end, chars := len(shown), 0
	for i := range shown {
		if chars == maxShownOutput {
			end = i
			break
		}
		chars++
	}
	next := dropped + int64(from+end)
	meta["next_offset"] = next
	res := &Result{Content: shown[:end], Truncated: end < len(shown) || offset < dropped, Meta: meta}
	if res.Content != "" && !strings.HasSuffix(res.Content, "\n") {
		res.Content += "\n"
	}
	if offset < dropped {
		res.Content = fmt.Sprintf(notKept, dropped) + res.Content
	}
	if end < len(shown) {
		note += "; there is more"
	}
	res.Content += fmt.Sprintf("[%s; byte_offset %d is next]", note, next)
	return res
}

// await waits until the job has something beyond the offset, has ended, or the time is up.
func (j *job) await(ctx context.Context, offset int64, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		j.mu.Lock()
		ready, more := j.over || j.dropped+int64(len(j.kept)) > offset, j.more
		j.mu.Unlock()
		if ready {
			return nil
		}
		select {
		case <-more:
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return stopped(ctx.Err())
		}
	}
}

// leftOutput is what a job that is no more left in home.
func leftOutput(tc *Context, a jobOutputArgs, note string, meta map[string]any) (*Result, error) {
	gone := noJob(a.JobID)
	if tc.Home == nil || !plainID(a.JobID) || !strings.HasPrefix(a.JobID, messages.JobPrefix) {
		return nil, gone
	}
	f, err := tc.Home.ReadFile(spillName(a.JobID), workspace.MaxFile)
	if err != nil {
		return nil, gone
	}
	text, dropped := string(f.Data), int64(0)
	if n, err := fmt.Sscanf(text, notKept, &dropped); n == 1 && err == nil {
		_, text, _ = strings.Cut(text, "\n")
	}
	text, word, how := endOf(text)
	if how != "" && meta["state"] == jobGone {
		note, meta["state"] = how, word
		code := 0
		if n, err := fmt.Sscanf(how, "exit code %d", &code); n == 1 && err == nil {
			meta["exit_code"] = code
		}
	}
	return part(text, dropped, a.Offset, note, meta), nil
}

// jobGone is the state of a job of which only what it printed is known.
const jobGone = "gone"

// endLine is what follows the output of a job that is kept: how it ended, in a word and in a sentence. The newline before it is not the job's.
const endLine = "\n[job %s: %s]\n"

// endOf takes off what says how a job ended; "" where nothing does, as in what older versions kept.
func endOf(text string) (printed, word, note string) {
	whole, ended := strings.CutSuffix(text, "]\n")
	at := strings.LastIndexByte(whole, '\n')
	if !ended || at < 0 {
		return text, "", ""
	}
	line, is := strings.CutPrefix(whole[at+1:], "[job ")
	word, note, more := strings.Cut(line, ": ")
	if !is || !more || !slices.Contains([]string{JobExited, JobKilled, JobFailed, JobUnknown}, word) {
		return text, "", ""
	}
	return whole[:at], word, note
}
