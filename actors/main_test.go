package actors_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// nameArg is the one argument of the tests' own tools.
type nameArg struct {
	Name string `json:"name" desc:"What to work on."`
}

// tool makes a tool of a function; what it returns is the result's content.
func tool(t testing.TB, name string, effect messages.Effect_Class, fn func(ctx context.Context, arg string) (string, error)) tools.Tool {
	t.Helper()
	spec := tools.Spec{Name: name, Description: "Does " + name + ". Example: `{\"name\": \"x\"}`", Effect: effect}
	made, err := tools.Func(spec, func(tc *tools.Context, a nameArg) (*tools.Result, error) {
		content, err := fn(tc.Signal, a.Name)
		if err != nil {
			return nil, err
		}
		return &tools.Result{Content: content}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

const (
	pure       = messages.Effect_PURE
	idempotent = messages.Effect_IDEMPOTENT
	atMostOnce = messages.Effect_AT_MOST_ONCE
)
