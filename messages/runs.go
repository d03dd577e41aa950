package messages

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// StartRunJSON starts a pipeline run.
type StartRunJSON struct {
	Pipeline   string          `json:"pipeline"`             // the text of the file
	Files      []RunFileJSON   `json:"files,omitempty"`      // of the pipelines that it runs
	Inputs     json.RawMessage `json:"inputs,omitempty"`     // an object; of inputs of type file, the texts
	Model      string          `json:"model,omitempty"`      // instead of the defaults'
	Workspaces []AttachJSON    `json:"workspaces,omitempty"` // the first is the run's folder
	Rules      []string        `json:"rules,omitempty"`
	NoInput    bool            `json:"no_input,omitempty"` // nobody answers: questions end as on_timeout says
}

// RunFileJSON is one file of a plan.
type RunFileJSON struct {
	Path string `json:"path"`
	Text string `json:"text"`
}

// Proto is the session that is made for the run, with the run.
func (j *StartRunJSON) Proto() (*CreateSession, error) {
	if j.Pipeline == "" {
		return nil, Fail(CodeBadRequest, "the pipeline is missing", "send the text of its file as pipeline")
	}
	m := &CreateSession{SessionId: NewID(SessionPrefix), Model: j.Model, Rules: j.Rules, NoInput: j.NoInput, Ask: !j.NoInput}
	m.Run = &RunStarted{
		RunId: RunOf(m.GetSessionId()), Model: j.Model, InputsJson: string(j.Inputs), By: "api", Sources: []*PlanSource{{Path: "pipeline.yaml", Text: j.Pipeline}},
	}
	for _, f := range j.Files {
		m.Run.Sources = append(m.Run.Sources, &PlanSource{Path: f.Path, Text: f.Text})
	}
	for _, w := range j.Workspaces {
		spec, err := w.Proto()
		if err != nil {
			return nil, err
		}
		m.Workspaces = append(m.Workspaces, spec)
	}
	return m, nil
}

// RunJSON is a run as it is listed and shown.
type RunJSON struct {
	ID        string          `json:"id"`
	State     string          `json:"state"` // running | waiting | succeeded | failed | cancelled
	Name      string          `json:"name"`
	Session   string          `json:"session"`
	StartedAt string          `json:"started_at"`
	UpdatedAt string          `json:"updated_at,omitempty"`
	Steps     int32           `json:"steps"`
	StepsDone int32           `json:"steps_done"`
	Items     int64           `json:"items"`
	ItemsDone int64           `json:"items_done"`
	Revision  uint64          `json:"revision"`
	PlanHash  string          `json:"plan_hash,omitempty"` // hex
	Error     string          `json:"error,omitempty"`
	Inputs    json.RawMessage `json:"inputs,omitempty"`
	Outputs   json.RawMessage `json:"outputs,omitempty"`
	Usage     UsageJSON       `json:"usage"`
	UsageGone *UsageJSON      `json:"usage_gone,omitempty"` // of usage: by steps that a changed file has no more, or of another kind
	Waits     uint32          `json:"waits,omitempty"`      // tells what items wait for from what they waited for at another time
	Waiting   *WaitingJSON    `json:"waiting,omitempty"`    // for what the first of its items does about which somebody can do something, or else the first
	Scripted  bool            `json:"scripted,omitempty"`   // no language model answered a turn of it that ended
	StepList  []RunStepJSON   `json:"step_list,omitempty"`  // of one run that is shown
}

// RunStepJSON is a step of a run.
type RunStepJSON struct {
	Step  string        `json:"step"`
	Kind  string        `json:"kind"`
	State string        `json:"state"` // pending | running | waiting | succeeded | failed | skipped
	Error string        `json:"error,omitempty"`
	Needs []string      `json:"needs,omitempty"`
	Total int32         `json:"total"`
	Done  int32         `json:"done"`
	Fails int32         `json:"failed"`
	Rate  float64       `json:"per_second,omitempty"` // items that ended of late
	Left  int64         `json:"left_ms,omitempty"`    // until the last one ends, at that rate
	Usage UsageJSON     `json:"usage"`                // of its items that ended, and of attempts before their last one
	Items []RunItemJSON `json:"items,omitempty"`

	Waits   int32        `json:"waits,omitempty"`   // how many of its items wait for what the run itself has not asked
	Waiting *WaitingJSON `json:"waiting,omitempty"` // for what the first of them does that cannot go on by itself, or else the first

	Budget *BudgetViewJSON `json:"budget,omitempty"` // absent: it has none of its own, or has not begun
}

// RunItemJSON is an item of a step.
type RunItemJSON struct {
	Key      string    `json:"key"`
	Index    int32     `json:"index"`
	State    string    `json:"state"`
	Attempt  int32     `json:"attempt,omitempty"`
	Worker   string    `json:"worker,omitempty"`
	Error    string    `json:"error,omitempty"`
	Approval string    `json:"approval,omitempty"` // that it waits for
	Usage    UsageJSON `json:"usage"`

	Waiting *WaitingJSON `json:"waiting,omitempty"` // what whoever works on it waits for
}

// JSON is the form that every surface shows.
func (x *RunView) JSON() RunJSON {
	j := RunJSON{
		ID: x.GetRunId(), State: x.GetState(), Name: x.GetName(), Session: x.GetSessionId(), StartedAt: FormatTime(x.GetStartedAtUnixMs()),
		Steps: x.GetSteps(), StepsDone: x.GetStepsDone(), Items: x.GetItems(), ItemsDone: x.GetItemsDone(), Revision: x.GetRevision(),
		PlanHash: hex.EncodeToString(x.GetPlanHash()), Error: x.GetError(), Inputs: rawJSON(x.GetInputsJson()), Outputs: rawJSON(x.GetOutputsJson()), Usage: x.GetUsage().JSON(), Waits: x.GetWaits(), Waiting: waitingIn(x.GetWaiting(), x.GetSessionId()),
		Scripted: x.GetScripted(),
	}
	if at := x.GetUpdatedAtUnixMs(); at != 0 {
		j.UpdatedAt = FormatTime(at)
	}
	if g := x.GetUsageGone(); g != nil {
		u := g.JSON()
		j.UsageGone = &u
	}
	for _, s := range x.GetStepViews() {
		step := RunStepJSON{
			Step: s.GetStep(), Kind: s.GetKind(), State: s.GetState(), Error: s.GetError(), Needs: s.GetNeeds(), Total: s.GetItems(), Done: s.GetDone(), Fails: s.GetFailed(),
			Rate: s.GetPerSecond(), Left: s.GetLeftMs(), Usage: s.GetUsage().JSON(), Budget: s.GetBudget().JSON(),
			Waits: s.GetWaits(), Waiting: waitingIn(s.GetWaiting(), x.GetSessionId()),
		}
		for _, i := range s.GetItemViews() {
			step.Items = append(step.Items, RunItemJSON{
				Key: i.GetKey(), Index: i.GetIndex(), State: i.GetState(), Attempt: i.GetAttempt(), Worker: i.GetWorkerId(), Error: i.GetError(),
				Approval: i.GetApprovalId(), Usage: i.GetUsage().JSON(), Waiting: waitingIn(i.GetWaiting(), x.GetSessionId()),
			})
		}
		j.StepList = append(j.StepList, step)
	}
	return j
}

// waitingIn is what an item of a run of a session waits for.
func waitingIn(x *Waiting, session string) *WaitingJSON {
	j := x.JSON()
	if j != nil {
		j.Text, j.Command = x.Text(), x.Command(session)
	}
	return j
}

func rawJSON(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
}

// Proto is the way back, for clients.
func (j RunJSON) Proto() *RunView {
	hash, _ := hex.DecodeString(j.PlanHash)
	x := &RunView{
		RunId: j.ID, State: j.State, Name: j.Name, SessionId: j.Session, StartedAtUnixMs: timeRead(j.StartedAt), UpdatedAtUnixMs: timeRead(j.UpdatedAt),
		Steps: j.Steps, StepsDone: j.StepsDone, Items: j.Items, ItemsDone: j.ItemsDone, Revision: j.Revision, PlanHash: hash, Error: j.Error,
		InputsJson: string(j.Inputs), OutputsJson: string(j.Outputs), Usage: j.Usage.Proto(), Waits: j.Waits, Waiting: j.Waiting.Proto(),
		Scripted: j.Scripted,
	}
	if j.UsageGone != nil {
		x.UsageGone = j.UsageGone.Proto()
	}
	for _, s := range j.StepList {
		step := &RunStepView{Step: s.Step, Kind: s.Kind, State: s.State, Error: s.Error, Needs: s.Needs, Items: s.Total, Done: s.Done, Failed: s.Fails, PerSecond: s.Rate, LeftMs: s.Left, Usage: s.Usage.Proto(), Waits: s.Waits, Waiting: s.Waiting.Proto()}
		if s.Budget != nil {
			step.Budget = s.Budget.Proto()
		}
		for _, i := range s.Items {
			step.ItemViews = append(step.ItemViews, &RunItemView{
				Key: i.Key, Index: i.Index, State: i.State, Attempt: i.Attempt, WorkerId: i.Worker, Error: i.Error, ApprovalId: i.Approval, Usage: i.Usage.Proto(), Waiting: i.Waiting.Proto(),
			})
		}
		x.StepViews = append(x.StepViews, step)
	}
	return x
}

// JSON lists them; never null.
func (x *Runs) JSON() []RunJSON { return list(x.GetRuns(), (*RunView).JSON) }

// RunWordJSON cancels a run, or lets it go on.
type RunWordJSON struct {
	By            string        `json:"by,omitempty"`
	Reason        string        `json:"reason,omitempty"`
	PlanHash      string        `json:"plan_hash,omitempty"` // hex, of the file as it is now; absent: it is not compared
	Files         []RunFileJSON `json:"files,omitempty"`     // the file as it is now, its own first
	AcceptChanges bool          `json:"accept_changes,omitempty"`
}

// Resume is what lets a run go on.
func (j *RunWordJSON) Resume(id string) (*ResumeRun, error) {
	hash, err := hex.DecodeString(j.PlanHash)
	if err != nil {
		return nil, Fail(CodeBadRequest, fmt.Sprintf("plan_hash %q is no hex text", j.PlanHash), "")
	}
	m := &ResumeRun{RunId: id, PlanHash: hash, AcceptChanges: j.AcceptChanges, By: j.By}
	for _, f := range j.Files {
		m.Sources = append(m.Sources, &PlanSource{Path: f.Path, Text: f.Text})
	}
	return m, nil
}

// RunWordFrom is the way back, for clients.
func RunWordFrom(m *ResumeRun) RunWordJSON {
	j := RunWordJSON{By: m.GetBy(), PlanHash: hex.EncodeToString(m.GetPlanHash()), AcceptChanges: m.GetAcceptChanges()}
	for _, s := range m.GetSources() {
		j.Files = append(j.Files, RunFileJSON{s.GetPath(), s.GetText()})
	}
	return j
}
