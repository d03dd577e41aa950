package sandbox

import (
	"context"

	"github.com/troupe-dev/troupe/tools"
)

func newNone(context.Context, Options) (tools.Sandbox, error) {
	return nil, &Unavailable{None, "commands cannot be run on this system", "use a workspace on a Linux or macOS machine"}
}
