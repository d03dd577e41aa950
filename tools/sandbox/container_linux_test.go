package sandbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/tools/toolstest"
)

func inAContainer(t testing.TB, change ...func(*Options)) tools.Sandbox {
	t.Helper()
	image := toolstest.Image(t)
	return detect(t, Container, append([]func(*Options){func(o *Options) { o.Image = image }}, change...)...)
}

// ours lists the containers of this process.
func ours(t *testing.T, s tools.Sandbox) string {
	t.Helper()
	c := s.(*container) //nolint:forcetypeassert // it is one
	out, err := c.ask(t.Context(), "ps", "--all", "--filter", "name="+c.prefix, "--format", "{{.Names}}")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestACommandInAContainerHasItsWorkspaceAndNothingElse(t *testing.T) {
	t.Setenv("TROUPE_TEST_API_KEY", "not-for-models")
	s, ws, outside := inAContainer(t), folder(t), folder(t)
	secret := filepath.Join(outside, "secret")
	if err := errors.Join(os.WriteFile(secret, []byte("TOPSECRET"), 0o666), os.MkdirAll(filepath.Join(ws, "sub", ".troupe"), 0o755)); err != nil {
		t.Fatal(err)
	}
	out, exit := sh(t, s, ws, `pwd; cat; echo $HOME $TMPDIR $TOKEN; cat `+secret+`; echo x >/bin/x && echo wrote /bin; echo in >inside; echo home >~/.profile
		env; cat /proc/1/environ; ls .troupe; echo x >.troupe/config.yaml; grep CapEff /proc/self/status; while read name rest; do echo net $name; done </proc/net/dev; exit 7`,
		func(c *tools.Command) {
			c.Dir = filepath.Join(ws, "sub")
			c.Env = append(c.Env, "TOKEN=of-the-project", "IN="+ws+"/sub")
		})
	if exit.Code != 7 || !strings.HasPrefix(out, "/workspace/sub\n/home/agent /tmp of-the-project\n") {
		t.Errorf("%+v: %s", exit, out)
	}
	for _, bad := range []string{"TOPSECRET", "wrote", "not-for-models", ws, "net eth"} {
		if strings.Contains(out, bad) {
			t.Errorf("%q is seen:\n%s", bad, out)
		}
	}
	for _, good := range []string{"IN=/workspace/sub", "CapEff:\t0000000000000000", "net lo:"} {
		if !strings.Contains(out, good) {
			t.Errorf("%q is missing:\n%s", good, out)
		}
	}
	if b, err := os.ReadFile(filepath.Join(ws, "sub", "inside")); err != nil || string(b) != "in\n" {
		t.Errorf("the workspace was not written: %s %v", b, err)
	}
	if home, _ := sh(t, s, ws, "cat ~/.profile; touch new", func(c *tools.Command) { c.ReadOnly = true }); !strings.HasPrefix(home, "home\n") || !strings.Contains(home, "ead-only") {
		t.Errorf("the home does not last, or reading writes: %s", home)
	}
	if left := ours(t, s); left != "" {
		t.Errorf("containers are left: %s", left)
	}
}

func TestContainersEndWithTheirCalls(t *testing.T) {
	s, n := inAContainer(t), sleeper(t, 9)
	for name, script := range map[string]string{
		"left":      `sleep ` + n + ` & setsid sleep ` + n + ` & echo started`,
		"cancelled": `setsid sleep ` + n + ` & echo started; sleep ` + n,
	} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		said := writer(func(p []byte) (int, error) {
			if name == "cancelled" {
				cancel()
			}
			return len(p), nil
		})
		_, _, err := try(ctx, s, folder(t), script, func(c *tools.Command) { c.Output = said })
		if (name == "cancelled") != errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		if left := alive(t, n); len(left) > 0 {
			t.Errorf("%s: left behind: %s", name, left)
		}
	}
	if out, exit := sh(t, s, folder(t), "yes", func(c *tools.Command) { c.MaxOutput = 1 << 20 }); len(out) != 1<<20 || exit.Limit != "output" {
		t.Errorf("%d bytes, %+v", len(out), exit)
	}
	if _, exit := sh(t, s, folder(t), `tail /dev/zero`); exit.Code == 0 {
		t.Errorf("memory: %+v", exit)
	}
	if _, exit := sh(t, s, folder(t), `kill -9 $$`); exit.Signal != "SIGKILL" {
		t.Errorf("%+v", exit)
	}
	if left := ours(t, s); left != "" {
		t.Errorf("containers are left: %s", left)
	}
}

func TestContainersOfADeadProcessAreRemovedAtStart(t *testing.T) {
	s := inAContainer(t)
	c := s.(*container) //nolint:forcetypeassert // it is one
	dead, alive := "troupe-4194304-1-exe_dead", c.ContainerID("exe_alive")
	for _, name := range []string{dead, alive} {
		if _, err := c.ask(t.Context(), "create", "--name", name, "--ulimit", "nofile=1024:1024", c.o.Image, "/bin/sh"); err != nil {
			t.Fatal(err)
		}
		defer c.remove(context.Background(), name)
	}
	again := inAContainer(t)
	list, err := again.(*container).ask(t.Context(), "ps", "--all", "--format", "{{.Names}}")
	if err != nil || strings.Contains(list, dead) || !strings.Contains(list, alive) {
		t.Errorf("%v:\n%s", err, list)
	}
}

func TestVariablesOfADeadProcessAreRemovedAtStart(t *testing.T) {
	dir := folder(t)
	c := &container{o: Options{CacheDir: dir}, prefix: "troupe-" + strconv.Itoa(os.Getpid()) + "-" + processStart(os.Getpid()) + "-"}
	alive, err := c.variables(&tools.Command{Env: []string{"TOKEN=of-the-project"}})
	dead := filepath.Join(dir, "troupe-4194304-1-env-123")
	if err = errors.Join(err, os.WriteFile(dead, []byte("TOKEN=of-the-project\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	c.forget()
	if _, err := os.Stat(dead); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the variables of a dead process stay: %v", err)
	}
	if _, err := os.Stat(alive); err != nil {
		t.Errorf("those of a command that runs are gone: %v", err)
	}
}

func TestWithoutAnEngineOrAnImageThereIsNoContainer(t *testing.T) {
	for name, o := range map[string]Options{
		"sandbox.image": {CacheDir: t.TempDir()},
		"podman":        {CacheDir: t.TempDir(), Image: "localhost/no-such-image:1"},
		"no image's":    {CacheDir: t.TempDir(), Image: "--privileged"},
	} {
		_, err := Detect(t.Context(), Container, o)
		var missing *Unavailable
		if !errors.As(err, &missing) || !strings.Contains(missing.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
