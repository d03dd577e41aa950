package messages

import (
	"encoding/json"
	"fmt"
	"net/url"
)

// UnreadHeader names, beside a list of calls, the workers whose journals cannot be read: an array of UnreadJSON, escaped as in a query.
const UnreadHeader = "Troupe-Unread"

// A header holds so many workers, and so many bytes of what is wrong with each: clients bound it. The last one says how many more there are.
const (
	mostUnread  = 10
	mostProblem = 300
)

// UnreadHeader is what the header says; empty when everything was read.
func (x *Calls) UnreadHeader() string {
	var all []UnreadJSON
	for i, u := range x.GetUnread() {
		if i == mostUnread {
			all = append(all, UnreadJSON{Problem: fmt.Sprintf("and %d more", len(x.GetUnread())-i)})
			break
		}
		all = append(all, UnreadJSON{Session: u.GetSessionId(), Worker: u.GetWorkerId(), Problem: u.GetProblem()[:min(len(u.GetProblem()), mostProblem)]})
	}
	if all == nil {
		return ""
	}
	b, err := json.Marshal(all)
	if err != nil { // strings have a form, always
		return ""
	}
	return url.QueryEscape(string(b))
}

// ReadUnread is the way back. What is no such header says nothing.
func (x *Calls) ReadUnread(header string) {
	text, err := url.QueryUnescape(header)
	var all []UnreadJSON
	if err != nil || json.Unmarshal([]byte(text), &all) != nil {
		return
	}
	for _, u := range all {
		x.Unread = append(x.Unread, &Unread{SessionId: u.Session, WorkerId: u.Worker, Problem: u.Problem})
	}
}
