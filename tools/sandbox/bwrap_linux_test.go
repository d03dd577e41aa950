package sandbox

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/tools"
)

func TestNothingOfTheServersEnvironmentIsSeen(t *testing.T) {
	t.Setenv("TROUPE_TEST_API_KEY", "not-for-models")
	eachConfined(t, func(t *testing.T, s tools.Sandbox) {
		out, _ := sh(t, s, folder(t), `env; echo --; for p in /proc/[0-9]*; do cat $p/environ $p/cmdline; done | tr '\0' '\n'`)
		if strings.Contains(out, "TROUPE_TEST") || strings.Contains(out, "not-for-models") {
			t.Errorf("the server's environment is seen:\n%s", out)
		}
		if !strings.Contains(out, "LANG=C.UTF-8") {
			t.Errorf("its own environment is not seen:\n%s", out)
		}
		out, _ = sh(t, s, folder(t), `wc -c </proc/1/environ`)
		if s.Name() == "bwrap" && strings.TrimSpace(out) != "0" || s.Name() != "bwrap" && !strings.Contains(out, "denied") {
			t.Errorf("the first process has an environment of %s bytes", out)
		}
	})
}

func TestVariablesDoNotShowInTheListOfProcesses(t *testing.T) {
	eachConfined(t, func(t *testing.T, s tools.Sandbox) {
		out, _ := sh(t, s, folder(t), `cat /proc/1/cmdline; echo; echo $TOKEN`, func(c *tools.Command) {
			c.Env = append(c.Env, "TOKEN=hush-hush")
		})
		if strings.Count(out, "hush-hush") != 1 {
			t.Errorf("the variable is in a command line, or not in the environment:\n%s", out)
		}
	})
}

func TestOnlyTheWorkspaceAndAPrivateHomeCanBeWritten(t *testing.T) {
	eachConfined(t, func(t *testing.T, s tools.Sandbox) {
		ws, out := folder(t), folder(t)
		secret := filepath.Join(out, "secret")
		temporary := "/tmp/" + filepath.Base(filepath.Dir(out)) + ".x" // nobody else's
		if err := os.WriteFile(secret, []byte("TOPSECRET"), 0o666); err != nil {
			t.Fatal(err)
		}
		said, _ := sh(t, s, ws, `cat `+secret+`; ls `+out+`; echo x >`+secret+`; for f in /etc/x /usr/x /x /dev/x /var/x /root/x /home/x; do
		mkdir -p $(dirname $f); echo x >$f && echo "wrote $f"; done 2>/dev/null
		mount -t tmpfs x /usr && echo mounted; mount -o remount,rw / && echo remounted; umount `+ws+`/.troupe && echo unmounted
		echo in >inside && echo home >~/.profile && cat ~/.profile; echo temp >`+temporary+`; echo shm >/dev/shm/x && rm /dev/shm/x && echo shm; id -u; grep CapEff /proc/self/status`)
		for _, bad := range []string{"TOPSECRET", "wrote", "mounted", "remounted", "unmounted"} {
			if strings.Contains(said, bad) {
				t.Errorf("a command could do more than it may (%s):\n%s", bad, said)
			}
		}
		if !strings.Contains(said, "home\n") || !isBare(s) && !strings.Contains(said, "shm\n") || !isBare(s) && !strings.Contains(said, "CapEff:\t0000000000000000") {
			t.Errorf("its own places or its lack of privileges are wrong:\n%s", said)
		}
		if b, err := os.ReadFile(filepath.Join(ws, "inside")); err != nil || string(b) != "in\n" {
			t.Errorf("the workspace was not written: %s %v", b, err)
		}
		if b, err := os.ReadFile(secret); err != nil || string(b) != "TOPSECRET" {
			t.Errorf("the secret is now %q, %v", b, err)
		}
		if _, err := os.Stat(temporary); err == nil {
			t.Error("/tmp is the machine's")
		}
		home, _ := sh(t, s, ws, `cat ~/.profile`)
		if home != "home\n" {
			t.Errorf("the home does not last: %q", home)
		}
		if other, _ := sh(t, s, folder(t), `cat ~/.profile`); strings.HasPrefix(other, "home") {
			t.Error("two workspaces share a home")
		}
	})
}

// TestWhatMayOnlyBeReadIsNotWritten wherever it lies: in a /tmp that is the command's own, or in a workspace that it may write.
func TestWhatMayOnlyBeReadIsNotWritten(t *testing.T) {
	dir := folder(t) // below /tmp, as a rule
	in := func(name string) string {
		full := filepath.Join(dir, name)
		if err := os.MkdirAll(full, 0o755); err != nil { //nolint:gosec // it is read by others
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(full, "f"), []byte("as it was\n"), 0o644); err != nil { //nolint:gosec // the same
			t.Fatal(err)
		}
		return full
	}
	cache, ws, beside := in("cache"), in("ws"), besideTemp(t)
	inner := in("ws/inner")
	eachConfined(t, func(t *testing.T, s tools.Sandbox) {
		mode := Mode(s.Name())
		if isBare(s) {
			mode = bareLandlock
		}
		s = detect(t, mode, func(o *Options) { o.Read = []string{cache, inner} })
		attack := "for d in " + strings.Join([]string{ws, cache, inner, beside, "~"}, " ") + `; do cat $d/f; echo x >$d/f; echo x >$d/new; rm -f $d/f; mkdir $d/dir; chmod 777 $d; done 2>/dev/null; echo end`
		unchanged := func(what string, dirs ...string) {
			t.Helper()
			for _, d := range dirs {
				all, err := os.ReadDir(d)
				text, rerr := os.ReadFile(filepath.Join(d, "f"))
				info, serr := os.Stat(d)
				if err != nil || rerr != nil || serr != nil || string(text) != "as it was\n" || info.Mode().Perm() != 0o755 && !isBare(s) {
					t.Errorf("%s: %s is %v, %q in it", what, d, all, text)
				}
				for _, e := range all {
					if e.Name() != "f" && e.Name() != "inner" && e.Name() != ".troupe" {
						t.Errorf("%s: %s was made in %s", what, e.Name(), d)
					}
				}
			}
		}
		said, _ := sh(t, s, ws, attack, func(c *tools.Command) { c.ReadOnly = true })
		if !strings.HasPrefix(said, "as it was\nas it was\n") || !strings.HasSuffix(said, "end\n") {
			t.Errorf("it reads %q", said)
		}
		unchanged("read-only", ws, cache, inner)
		if out, _ := sh(t, s, ws, `cat ~/new ~/f`); !strings.Contains(out, "No such file") && !strings.Contains(out, "cannot open") || strings.Contains(out, "x\n") {
			t.Errorf("it wrote into the home: %q", out)
		}
		if isBare(s) { // landlock alone takes nothing out of a folder that may be written
			return
		}
		sh(t, s, ws, strings.Replace(attack, ws+" ", "", 1))
		unchanged("otherwise", cache, inner)
	})
}

func TestTroupesOwnFolderIsHiddenAndCannotBeMade(t *testing.T) {
	eachConfined(t, func(t *testing.T, s tools.Sandbox) {
		ws := folder(t)
		out, _ := sh(t, s, ws, `ls -A .troupe; echo x >.troupe/config.yaml; mv .troupe away; rmdir .troupe; ls -Ad .troupe`)
		if _, err := os.Lstat(filepath.Join(ws, ".troupe")); err == nil {
			t.Errorf("a folder .troupe is left behind:\n%s", out)
		}
		if err := os.Mkdir(filepath.Join(ws, ".troupe"), 0o755); err != nil {
			t.Fatal(err)
		}
		config := filepath.Join(ws, ".troupe", "config.yaml")
		if err := os.WriteFile(config, []byte("key: KEYKEY"), 0o644); err != nil {
			t.Fatal(err)
		}
		if isBare(s) {
			if out, _, err := try(context.Background(), s, ws, "echo ran"); err == nil || out != "" {
				t.Errorf("it ran: %s", out)
			}
			return
		}
		out, _ = sh(t, s, ws, `cat .troupe/config.yaml; rm -rf .troupe; echo x >.troupe/config.yaml; true`)
		if b, err := os.ReadFile(config); strings.Contains(out, "KEYKEY") || err != nil || string(b) != "key: KEYKEY" {
			t.Errorf("the folder was seen or changed: %s, %s, %v", out, b, err)
		}
	})
}

func TestALinkInThePlaceOfTroupesFolderIsRefused(t *testing.T) {
	eachConfined(t, func(t *testing.T, s tools.Sandbox) {
		ws := folder(t)
		if err := os.Symlink("/tmp", filepath.Join(ws, ".troupe")); err != nil {
			t.Fatal(err)
		}
		if out, _, err := try(context.Background(), s, ws, "echo ran"); err == nil || out != "" {
			t.Errorf("it ran: %s", out)
		}
	})
}

func TestHiddenFoldersStayHiddenInsideAWorkspace(t *testing.T) {
	ws := folder(t)
	data := filepath.Join(ws, "share", "data")
	if err := os.MkdirAll(data, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "journal"), []byte("JOURNAL"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []Mode{Bwrap, Landlock, bareLandlock} {
		s := detect(t, mode, func(o *Options) { o.Hide = []string{data} })
		out, _, err := try(t.Context(), s, ws, `cat share/data/journal; echo x >share/data/y; ls share/data; touch share/seen`)
		if strings.Contains(out, "JOURNAL") || (err != nil) != isBare(s) {
			t.Errorf("%s: a hidden folder is seen: %v\n%s", mode, err, out)
		}
		if entries, err := os.ReadDir(data); err != nil || len(entries) != 1 {
			t.Errorf("%s: a hidden folder was changed: %v %v", mode, entries, err)
		}
	}
}

func TestAWorkspaceAroundTheCacheSeesNoOtherHome(t *testing.T) {
	ws := folder(t)
	if err := os.Symlink(ws, ws+"-link"); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []Mode{Bwrap, Landlock, bareLandlock} {
		s := detect(t, mode, func(o *Options) { o.CacheDir = filepath.Join(ws+"-link", "cache") })
		sh(t, s, folder(t), `echo OTHER >~/.profile`)
		out, exit, err := try(t.Context(), s, ws, `echo OWN >~/.profile; cat cache/homes/*/.profile; mkdir cache/homes/x && echo made`)
		if isBare(s) {
			if err == nil || out != "" {
				t.Errorf("%s: it ran: %s", mode, out)
			}
			continue
		}
		if err != nil || out != "OWN\n" && !strings.HasPrefix(out, "OWN\nmkdir:") || exit.Code == 0 {
			t.Errorf("%s: %d %s %v", mode, exit.Code, out, err)
		}
	}
}

func TestTheSystemItselfIsNoWorkspace(t *testing.T) {
	eachConfined(t, func(t *testing.T, s tools.Sandbox) {
		for _, dir := range []string{"/", "/etc", "/usr", "relative", "/tmp/../etc", ""} {
			if _, _, err := try(context.Background(), s, dir, "true"); err == nil {
				t.Errorf("%q was taken for a workspace", dir)
			}
		}
	})
}

func TestTheNetworkIsThereOnlyWhenAsked(t *testing.T) {
	eachConfined(t, func(t *testing.T, s tools.Sandbox) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				c.Close()
			}
		}()
		bash, err := exec.LookPath("bash")
		if err != nil {
			t.Skip("no bash on this machine to open a connection with")
		}
		_, port, _ := net.SplitHostPort(l.Addr().String())
		dial := bash + ` -c 'exec 5<>/dev/tcp/127.0.0.1/` + port + ` && echo connected'`
		if out, _ := sh(t, s, folder(t), dial); strings.Contains(out, "connected") {
			t.Error("a command without the network reached this machine")
		}
		out, _ := sh(t, s, folder(t), dial, func(c *tools.Command) { c.Network = true })
		if !strings.Contains(out, "connected") {
			t.Errorf("a command with the network reached nothing: %s", out)
		}
	})
}

func TestThereIsNoTerminalAndNoHandleOfOurs(t *testing.T) {
	eachConfined(t, func(t *testing.T, s tools.Sandbox) {
		if isBare(s) {
			return // it sees no /proc
		}
		out, exit := sh(t, s, folder(t), `(: </dev/tty) 2>/dev/null && echo tty; cat; ls -l /proc/self/fd; hostname`)
		if exit.Code != 0 || strings.Contains(out, "tty") || !strings.Contains(out, "0 -> /dev/null") || !strings.Contains(out, "sandbox") {
			t.Errorf("%d: %s", exit.Code, out)
		}
		if n := strings.Count(out, " -> "); n != 4 { // with ls's own handle on the folder
			t.Errorf("%d handles:\n%s", n, out)
		}
	})
}

func TestAFailedSetUpIsAnErrorAndNotTheCommands(t *testing.T) {
	eachConfined(t, func(t *testing.T, s tools.Sandbox) {
		ws := folder(t)
		out, _, err := try(context.Background(), s, ws, "echo ran", func(c *tools.Command) { c.Dir = ws + "/missing" })
		if err == nil || s.Name() == "bwrap" && !errors.Is(err, errAborted) || strings.Contains(out, "ran") {
			t.Errorf("%q %v", out, err)
		}
	})
}

// The module below needs one of this project's own requirements, from the module cache alone.
func TestGoTestWorksOfflineAndIsFastWhenWarm(t *testing.T) {
	if testing.Short() {
		t.Skip("short: a cold build takes some ten seconds")
	}
	ws, cache := folder(t), folder(t) // one for all: a cold build takes long
	for _, mode := range []Mode{Bwrap, Landlock, bareLandlock} {
		t.Run(string(mode), func(t *testing.T) {
			goTestWorks(t, ws, detect(t, mode, func(o *Options) { o.Limits, o.CacheDir = Limits{}, cache }))
		})
	}
}

func goTestWorks(t *testing.T, ws string, s tools.Sandbox) {
	t.Helper()
	version := moduleVersion(t, "github.com/google/uuid")
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(ws, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.com/m\n\ngo 1.26\n\nrequire github.com/google/uuid "+version+"\n")
	write("go.sum", moduleSums(t, "github.com/google/uuid", version))
	write("m_test.go", `package m

import ("testing"; "github.com/google/uuid")

func TestUUID(t *testing.T) { if uuid.New() == uuid.Nil { t.Fatal("nil") } }

func TestTemp(t *testing.T) { t.TempDir() }
`)
	cold, exit := sh(t, s, ws, "go test ./... && go vet ./...")
	if exit.Code != 0 || !strings.Contains(cold, "ok") {
		t.Fatalf("exit code %d:\n%s", exit.Code, cold)
	}
	t.Logf("first: %v", exit.Duration)
	warm, exit := sh(t, s, ws, "go test -count=1 -v ./...")
	if exit.Code != 0 || !strings.Contains(warm, "PASS") {
		t.Fatalf("exit code %d:\n%s", exit.Code, warm)
	}
	t.Logf("warm: %v", exit.Duration)
	out, exit := sh(t, s, ws, "go get github.com/google/uuid@v9.9.9")
	if exit.Code == 0 || !strings.Contains(out, "GOPROXY=off") {
		t.Errorf("a module that is not there: %d %s", exit.Code, out)
	}
}

func moduleVersion(t *testing.T, path string) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", path).Output()
	if err != nil {
		t.Skipf("the go command does not tell the version of %s: %v", path, err)
	}
	return strings.TrimSpace(string(out))
}

func moduleSums(t *testing.T, path, version string) string {
	t.Helper()
	b, err := os.ReadFile("../../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	var sums strings.Builder
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, path+" "+version) {
			sums.WriteString(line)
		}
	}
	return sums.String()
}

// BenchmarkStart measures what a command that does nothing costs, plain and in each back end.
func BenchmarkStart(b *testing.B) {
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			if err := exec.Command("/bin/sh", "-c", "true").Run(); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, mode := range []Mode{None, Bwrap, Landlock, bareLandlock, Container} {
		b.Run(string(mode), func(b *testing.B) {
			var s tools.Sandbox
			if mode == Container {
				s = inAContainer(b)
			} else {
				s = detect(b, mode)
			}
			ws := folder(b)
			for b.Loop() {
				if _, exit := sh(b, s, ws, "true"); exit.Code != 0 || exit.Duration > time.Minute {
					b.Fatal(exit)
				}
			}
		})
	}
}
