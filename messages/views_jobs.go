package messages

// JobsJSON counts the jobs of a session.
type JobsJSON struct {
	Running    int32 `json:"running"`    // turns
	Waiting    int32 `json:"waiting"`    // inputs, and turns that wait for the word of a shared conversation
	Background int32 `json:"background"` // commands that agents left running

	BackgroundSince string `json:"background_since,omitempty"` // when the first of these began; absent: there are none

	Jobs []BackgroundJSON `json:"jobs,omitempty"` // these, the oldest first
}

// BackgroundJSON is a command that an agent left running.
type BackgroundJSON struct {
	ID        string `json:"id"`
	Worker    string `json:"worker"`
	Workspace string `json:"workspace,omitempty"` // its address
	Command   string `json:"command,omitempty"`   // its beginning
	Since     string `json:"since"`
}

// JSON is the count in its wire form.
func (x *JobCount) JSON() JobsJSON {
	j := JobsJSON{Running: x.GetRunning(), Waiting: x.GetWaiting(), Background: x.GetBackground(), BackgroundSince: timeText(x.GetBackgroundSinceUnixMs())}
	for _, v := range x.GetJobs() {
		j.Jobs = append(j.Jobs, BackgroundJSON{ID: v.GetJobId(), Worker: v.GetWorkerId(), Workspace: v.GetWorkspace(), Command: v.GetCommand(), Since: timeText(v.GetSinceUnixMs())})
	}
	return j
}

// Proto is the way back.
func (j JobsJSON) Proto() *JobCount {
	n := &JobCount{Running: j.Running, Waiting: j.Waiting, Background: j.Background, BackgroundSinceUnixMs: timeRead(j.BackgroundSince)}
	for _, v := range j.Jobs {
		n.Jobs = append(n.Jobs, &BackgroundJob{JobId: v.ID, WorkerId: v.Worker, Workspace: v.Workspace, Command: v.Command, SinceUnixMs: timeRead(v.Since)})
	}
	return n
}
