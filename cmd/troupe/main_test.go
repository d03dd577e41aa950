package main

import (
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/tools/sandbox"
)

// TestMain makes this test binary also the program: the scripts run the real one, as a process.
func TestMain(m *testing.M) {
	if sandbox.Main() { // else the helper of a command would run the tests again
		return
	}
	testscript.Main(leakless{m}, map[string]func(){"troupe": main})
}

// leakless fails a run of tests that leaves goroutines behind.
type leakless struct{ m *testing.M }

func (l leakless) Run() (code int) {
	if signal.Ignored(syscall.SIGHUP) { // below nohup: what is handled here is not ignored by the programs that tests start
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	goleak.VerifyTestMain(l.m, goleak.Cleanup(func(c int) { code = c }),
		// The actor library counts dead letters in a goroutine that ends by itself after a second.
		goleak.IgnoreTopFunction("github.com/asynkron/protoactor-go/actor.NewDeadLetter.NewThrottle.func4.1"))
	return code
}

// TestScripts runs testdata/script/*.txtar: the specification of the command line. Each has an
// empty home and no variables that troupe reads.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			home := filepath.Join(env.WorkDir, "home")
			env.Setenv("HOME", home)
			for _, name := range []string{"XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"} {
				env.Setenv(name, "")
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			// For scripts that take the PATH away: the program by its full name.
			link := filepath.Join(env.WorkDir, "bin", "troupe")
			if err := os.Mkdir(filepath.Dir(link), 0o755); err != nil {
				return err
			}
			if err := os.Symlink(self, link); err != nil {
				return err
			}
			env.Setenv("TROUPE", link)
			return os.Mkdir(home, 0o755)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits":   exits,
			"jsonhas": jsonHas,
			"jsonenv": jsonEnv,
		},
	})
}
