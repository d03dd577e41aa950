package messages

// JobsJSON counts the jobs of a session.
type JobsJSON struct {
	Running    int32 `json:"running"`    // turns
	Waiting    int32 `json:"waiting"`    // inputs, and turns that wait for the word of a shared conversation
	Background int32 `json:"background"` // commands that agents left running

	BackgroundSince string `json:"background_since,omitempty"` // when the first of these began; absent: there are none
}

// JSON is the count in its wire form.
func (x *JobCount) JSON() JobsJSON {
	return JobsJSON{Running: x.GetRunning(), Waiting: x.GetWaiting(), Background: x.GetBackground(), BackgroundSince: timeText(x.GetBackgroundSinceUnixMs())}
}

// Proto is the way back.
func (j JobsJSON) Proto() *JobCount {
	return &JobCount{Running: j.Running, Waiting: j.Waiting, Background: j.Background, BackgroundSinceUnixMs: timeRead(j.BackgroundSince)}
}
