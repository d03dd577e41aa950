package gateway

import (
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/messages"
)

func TestEveryCodeHasTheStatusThatProgramsActOn(t *testing.T) {
	for status, codes := range map[int]string{
		400: "bad_request invalid_uri invalid_path",
		401: "unauthorized",
		403: "forbidden permission_denied network_denied field_read_only",
		404: "not_found no_turn workspace_not_found field_not_found",
		409: "conflict committed busy already_exists stale_lease quarantined already_resolved",
		410: "closed withdrawn trimmed",
		413: "too_large",
		422: "model agent validation_failed sandbox_unavailable",
		429: "rate_limited",
		500: "internal_error corrupt a_code_that_is_newer",
		502: "network_error",
		503: "unavailable",
		504: "timeout",
		507: "full",
	} {
		for code := range strings.FieldsSeq(codes) {
			if p := problemOf(0, messages.Fail(code, "m", "h")); p.Status != status || p.Code != code || p.Detail != "m" || p.Hint != "h" || p.Title == "" {
				t.Errorf("%s: %+v, want %d", code, p, status)
			}
		}
	}
}

func TestAProblemRepeatsOnlySoMuchOfWhatWasWrong(t *testing.T) {
	p := problemOf(0, messages.Fail(messages.CodeBadRequest, strings.Repeat("ä", maxDetail), ""))
	if want := strings.Repeat("ä", maxDetail/2) + " ... and 8192 bytes more"; p.Detail != want {
		t.Errorf("%d bytes: ... %q", len(p.Detail), p.Detail[len(p.Detail)-40:])
	}
}
