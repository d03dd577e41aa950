package sandbox

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/troupe-dev/troupe/tools"
)

// probeScript tries what a confined command must not be able to do. It gets the path of a file
// outside of its workspace, the name of the host's process table, or nothing where it shares it, and
// a process outside. It prints `held` when all of it failed and its own work succeeded.
const probeScript = `
echo inside > probe || { echo "the workspace cannot be written"; exit 1; }
{ read line < "$1"; } 2>/dev/null && { echo "a file outside of the workspace was read"; exit 1; }
{ echo outside > "$1"; } 2>/dev/null # may succeed in a scratch folder of that name: the host looks
{ echo outside > /etc/probe; } 2>/dev/null && { echo "/etc was written"; exit 1; }
if [ -n "$2" ]; then
	[ "$(readlink /proc/self/ns/pid)" = "$2" ] && { echo "the processes of the host are seen"; exit 1; }
else
	{ read line < "/proc/$3/stat"; } 2>/dev/null && { echo "the processes of the host are seen"; exit 1; }
	kill -0 "$3" 2>/dev/null && { echo "the processes of the host can be signalled"; exit 1; }
fi
{ read line < /proc/net/dev; } 2>/dev/null && while read name rest; do
	case "$name" in *:) [ "$name" = lo: ] || { echo "the network $name is there"; exit 1; } ;; esac
done < /proc/net/dev
echo held`

// prove runs the probe in a back end that confines; table says that commands have a process table
// of their own there.
func prove(ctx context.Context, s tools.Sandbox, o *Options, mode Mode, table bool, hint string) error {
	ctx, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	top := filepath.Join(o.CacheDir, "probes")
	if err := os.MkdirAll(top, 0o700); err != nil {
		return fmt.Errorf("probe the sandbox: %w", err)
	}
	dir, err := os.MkdirTemp(top, "")
	if err != nil {
		return fmt.Errorf("probe the sandbox: %w", err)
	}
	defer os.RemoveAll(dir)
	inside, outside := filepath.Join(dir, "inside"), filepath.Join(dir, "outside")
	if err := os.Mkdir(inside, 0o700); err != nil {
		return fmt.Errorf("probe the sandbox: %w", err)
	}
	if err := os.WriteFile(outside, []byte("untouched\n"), 0o600); err != nil {
		return fmt.Errorf("probe the sandbox: %w", err)
	}
	processes := ""
	if table {
		if processes, err = os.Readlink("/proc/self/ns/pid"); err != nil {
			return fmt.Errorf("probe the sandbox: %w", err)
		}
	}
	var out bytes.Buffer
	exit, err := s.Run(ctx, tools.Command{
		Argv:      []string{"/bin/sh", "-c", probeScript, "sh", outside, processes, strconv.Itoa(os.Getpid())},
		Workspace: inside, Env: []string{"PATH=/usr/bin:/bin"}, Output: &out, MaxOutput: 64 << 10,
	})
	if home, herr := o.home(inside); herr == nil {
		_ = os.RemoveAll(home)
	}
	said := strings.TrimSpace(out.String())
	if err != nil {
		return &Unavailable{mode, strings.TrimSpace(fmt.Sprintf("%v: %s", err, said)), hint}
	}
	if after, err := os.ReadFile(outside); err != nil || string(after) != "untouched\n" {
		return &Unavailable{mode, "in the probe run a file outside of the workspace was written", hint}
	}
	if exit.Code != 0 || said != "held" {
		return &Unavailable{mode, fmt.Sprintf("the probe run failed with exit code %d: %s", exit.Code, said), hint}
	}
	return nil
}
