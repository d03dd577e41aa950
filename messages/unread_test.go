package messages_test

import (
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/messages"
)

func TestAHeaderNamesAFewThatCannotBeReadAndHowManyMoreThereAre(t *testing.T) {
	list := &messages.Calls{}
	if list.UnreadHeader() != "" {
		t.Error("there is a header when all was read")
	}
	for range 25 {
		list.Unread = append(list.Unread, &messages.Unread{SessionId: "ses_1", WorkerId: "wrk_1", Problem: strings.Repeat("ü\r\n", 300)})
	}
	header := list.UnreadHeader()
	if len(header) > 32<<10 || strings.ContainsAny(header, "\r\n") {
		t.Errorf("%d bytes: %q", len(header), header)
	}
	back := &messages.Calls{}
	back.ReadUnread(header)
	if n := len(back.GetUnread()); n != 11 || back.GetUnread()[10].GetProblem() != "and 15 more" || back.GetUnread()[0].GetWorkerId() != "wrk_1" {
		t.Errorf("%d came back: %v", n, back)
	}
	none := &messages.Calls{}
	none.ReadUnread("%zz")
	none.ReadUnread("{}")
	if len(none.GetUnread()) > 0 {
		t.Errorf("from nonsense came %v", none)
	}
}
