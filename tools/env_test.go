package tools_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

func TestOnlyAllowedVariablesOfTheServerAreHandedOn(t *testing.T) {
	server := []string{"PATH=/bin", "LANG=C", "TZ=UTC", "HOME=/root", "OPENAI_API_KEY=k", "TROUPE_DATA=/x", "TERM=xterm", "PATHX=1", "CI=1", "broken"}
	if got := strings.Join(tools.BaseEnv(server, nil), " "); got != "LANG=C PATH=/bin TERM=dumb TZ=UTC" {
		t.Error(got)
	}
	if got := strings.Join(tools.BaseEnv(server, []string{"CI", "NONE"}), " "); got != "CI=1 LANG=C PATH=/bin TERM=dumb TZ=UTC" {
		t.Error(got)
	}
}

func TestTheProjectsVariablesWin(t *testing.T) {
	base := []string{"LANG=C", "PATH=/bin", "TZ=UTC"}
	env, err := tools.MergeEnv(base, []*messages.EnvVar{{Name: "LANG", Value: "de_DE"}, {Name: "A_1", Value: "x=y"}}, messages.Trust_RESTRICTED)
	if err != nil || strings.Join(env, " ") != "A_1=x=y LANG=de_DE PATH=/bin TZ=UTC" {
		t.Errorf("%v %v", env, err)
	}
	env, err = tools.MergeEnv(base, []*messages.EnvVar{{Name: "PATH", Value: "/opt/bin"}}, messages.Trust_FULL)
	if err != nil || !strings.Contains(strings.Join(env, " "), "PATH=/opt/bin") {
		t.Errorf("%v %v", env, err)
	}
}

func TestVariablesThatSteerProgramsNeedTrust(t *testing.T) {
	for _, name := range []string{"PATH", "path", "LD_PRELOAD", "LD_LIBRARY_PATH", "BASH_ENV", "ENV", "GIT_SSH_COMMAND", "GIT_DIR", "DYLD_INSERT_LIBRARIES", "BASH_FUNC_x"} {
		if err := tools.CheckVariable(name, "x", messages.Trust_RESTRICTED); err == nil {
			t.Errorf("%s is taken from an untrusted folder", name)
		}
		if err := tools.CheckVariable(name, "x", messages.Trust_FULL); err != nil {
			t.Errorf("%s is refused from a trusted folder: %v", name, err)
		}
	}
	for _, name := range []string{"", "A=B", "A B", "1A", "A\x00", "Ä", "BASH_FUNC_x%%", "HOME", "TMPDIR", "TROUPE_EXEC_ID", strings.Repeat("A", 201)} {
		err := tools.CheckVariable(name, "x", messages.Trust_FULL)
		var e *tools.Error
		if !errors.As(err, &e) || e.Code != tools.CodeValidationFailed {
			t.Errorf("%q: %v", name, err)
		}
	}
	if tools.CheckVariable("A", "x\x00", messages.Trust_FULL) == nil {
		t.Error("a NUL in a value is taken")
	}
}

func TestAnEnvelopeTellsResultsAndFailures(t *testing.T) {
	for _, c := range []struct {
		res  *tools.Result
		err  error
		want string
	}{
		{
			&tools.Result{Content: "x", Truncated: true, Meta: map[string]any{"n": 1}}, nil,
			`{"call_id":"c","tool":"t","ok":true,"content":"x","truncated":true,"meta":{"n":1}}`,
		},
		{nil, nil, `{"call_id":"c","tool":"t","ok":true,"content":"","truncated":false,"meta":{}}`},
		{
			nil, fmt.Errorf("run: %w", tools.Errorf(tools.CodeNotRead, "read it").With("path", "a")),
			`{"call_id":"c","tool":"t","ok":false,"content":"read it","error_code":"not_read","details":{"path":"a"},"truncated":false,"meta":{}}`,
		},
		{
			nil, tools.ErrorNotFound("x"),
			`{"call_id":"c","tool":"t","ok":false,"content":"Tool 'x' not found","error_code":"tool_not_found","truncated":false,"meta":{}}`,
		},
		{
			nil, fmt.Errorf("run: %w", context.Canceled),
			`{"call_id":"c","tool":"t","ok":false,"content":"the call was cancelled","error_code":"cancelled","truncated":false,"meta":{}}`,
		},
		{
			nil, context.DeadlineExceeded,
			`{"call_id":"c","tool":"t","ok":false,"content":"the call took too long and was stopped","error_code":"timeout","truncated":false,"meta":{}}`,
		},
	} {
		b, err := json.Marshal(tools.NewEnvelope("c", "t", c.res, c.err))
		if err != nil || string(b) != c.want {
			t.Errorf("%s, want %s (%v)", b, c.want, err)
		}
	}
	e := tools.NewEnvelope("c", "t", nil, errors.New("open /etc/secret: key=123"))
	if e.ErrorCode != tools.CodeInternalError || strings.Contains(e.Content, "123") || !strings.HasPrefix(e.Content, "Unexpected error: ") {
		t.Errorf("%+v", e)
	}
}
