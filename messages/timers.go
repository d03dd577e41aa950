package messages

import (
	"fmt"
	"strings"
	"time"
)

// SetTimerJSON sets a timer: an input that a session gets at a time.
type SetTimerJSON struct {
	ID      string     `json:"id,omitempty"` // empty: made by the server; the same id again changes nothing
	Worker  string     `json:"worker,omitempty"`
	At      string     `json:"at"` // RFC 3339
	Text    string     `json:"text,omitempty"`
	Parts   []PartJSON `json:"parts,omitempty"`   // instead of text
	Misfire string     `json:"misfire,omitempty"` // fire (default) | skip: what becomes of it when nobody was there in time
	By      string     `json:"by,omitempty"`
}

// TimerJSON is one timer of a listing.
type TimerJSON struct {
	ID      string `json:"id"`
	State   string `json:"state"` // set | fired | skipped | cancelled
	At      string `json:"at"`
	Text    string `json:"text"`
	Misfire string `json:"misfire"`
	Worker  string `json:"worker,omitempty"`
}

// Proto is the timer that is set.
func (j *SetTimerJSON) Proto() (*SetTimer, error) {
	in := InputJSON{InputID: j.ID, Text: j.Text, Parts: j.Parts}
	m, err := in.Proto() // the same parts, and the same rules for an id
	if err != nil {
		return nil, err
	}
	at, err := time.Parse(time.RFC3339Nano, j.At)
	if err != nil {
		return nil, Fail(CodeBadRequest, fmt.Sprintf("the timer's time %q cannot be read", j.At), "write it as 2026-03-01T09:00:00Z")
	}
	misfire, ok := TimerSet_Misfire_value[strings.ToUpper(j.Misfire)]
	if j.Misfire != "" && (!ok || j.Misfire != strings.ToLower(j.Misfire)) {
		return nil, Fail(CodeBadRequest, fmt.Sprintf("misfire %q is not known", j.Misfire), "one of fire, skip")
	}
	return &SetTimer{
		WorkerId: j.Worker, TimerId: j.ID, DueUnixMs: at.UnixMilli(), Parts: m.GetParts(), Misfire: TimerSet_Misfire(misfire), By: j.By,
	}, nil
}

// SetTimerFrom is the body that sets a timer.
func SetTimerFrom(m *SetTimer) (*SetTimerJSON, error) {
	in, err := InputFrom(&SubmitInput{InputId: m.GetTimerId(), Parts: m.GetParts()})
	if err != nil {
		return nil, err
	}
	j := &SetTimerJSON{ID: m.GetTimerId(), Worker: m.GetWorkerId(), At: FormatTime(m.GetDueUnixMs()), Text: in.Text, Parts: in.Parts, By: m.GetBy()}
	if m.GetMisfire() != TimerSet_FIRE {
		j.Misfire = strings.ToLower(m.GetMisfire().String())
	}
	return j, nil
}

// JSON is the timer in its wire form.
func (x *TimerView) JSON() TimerJSON {
	return TimerJSON{
		ID: x.GetTimerId(), State: x.GetState(), At: FormatTime(x.GetDueUnixMs()), Text: x.GetText(), Misfire: x.GetMisfire(), Worker: x.GetWorkerId(),
	}
}

// Proto is the way back.
func (j TimerJSON) Proto() *TimerView {
	return &TimerView{TimerId: j.ID, State: j.State, DueUnixMs: timeRead(j.At), Text: j.Text, Misfire: j.Misfire, WorkerId: j.Worker}
}

// JSON is the listing of timers.
func (x *Timers) JSON() []TimerJSON { return list(x.GetTimers(), (*TimerView).JSON) }
