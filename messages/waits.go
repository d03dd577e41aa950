package messages

import (
	"fmt"
	"strconv"
	"strings"
)

// What somebody who works on an item of a run may wait for.
const (
	WaitApproval = "approval"
	WaitQuestion = "question" // of the run itself; subject is its step
	WaitDoubt    = "doubt"    // a person's word on a call whose outcome is unknown
	WaitBudget   = "budget"
	WaitOwner    = "owner" // the machine that a workspace is on
	WaitTurn     = "turn"  // the calls of other steps, which come first
	WaitLease    = "lease"
	WaitRetry    = "retry"
	WaitPermit   = "permit"
)

// ForPeople says whether somebody has to do something before it goes on.
func (x *Waiting) ForPeople() bool {
	switch x.GetKind() {
	case WaitApproval, WaitQuestion, WaitDoubt, WaitOwner:
		return true
	case WaitBudget:
		return x.GetReason() != "" // else others may yet leave something of what was set aside for them
	}
	return false
}

// Text says what is waited for, behind "waits for".
func (x *Waiting) Text() string {
	switch x.GetKind() {
	case WaitApproval:
		return "an approval of " + x.GetSubject()
	case WaitQuestion:
		return "an answer to step " + x.GetSubject()
	case WaitDoubt:
		return "somebody's word on " + x.GetSubject() + ", whose outcome is unknown"
	case WaitBudget:
		of := "of the run"
		if x.GetStep() != "" {
			of = "of step " + x.GetStep()
		}
		if !x.ForPeople() {
			return "others who spend the budget " + of
		}
		return "more budget " + of
	case WaitOwner:
		return fmt.Sprintf("the machine of workspace %s, which is not connected", x.GetSubject())
	case WaitTurn:
		return "the calls of other steps"
	case WaitLease:
		return "the workspace " + x.GetSubject() + ", in which somebody else works"
	case WaitRetry:
		return fmt.Sprintf("another try at model %s: %s", x.GetSubject(), x.GetReason())
	case WaitPermit:
		return "a permit for a call of provider " + strconv.Quote(x.GetSubject())
	}
	return x.GetKind()
}

// Command is what a person may type, in a run of a session; "": nothing.
func (x *Waiting) Command(session string) string {
	switch {
	case x.GetKind() == WaitApproval:
		return "troupe approve " + x.GetApprovalId() + " (or deny)"
	case x.GetKind() == WaitQuestion:
		return "troupe approve " + x.GetApprovalId() + " (or deny; --reason CHOICE)"
	case x.GetKind() == WaitDoubt:
		return "troupe calls resolve " + x.GetExecId() + " retry (or done, or fail)"
	case x.GetKind() == WaitBudget && x.ForPeople():
		step := ""
		if x.GetStep() != "" {
			step = " --step " + ShellWord(x.GetStep())
		}
		return "troupe budget add " + session + step + " tokens=N"
	case x.GetKind() == WaitOwner:
		return "troupe attach DIR --session " + session
	case x.GetKind() == WaitLease && x.GetSession() != "" && x.GetSession() != session:
		return "troupe why " + x.GetSession()
	}
	return ""
}

// ShellWord is a word as one types it: the items of a step may have any names.
func ShellWord(s string) string {
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !strings.ContainsRune(plainInShells, r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

const plainInShells = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@%+=,"
