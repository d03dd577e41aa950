package sandbox

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func TestAMissingBwrapSaysHowToGetIt(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := Detect(context.Background(), Bwrap, Options{CacheDir: t.TempDir()})
	var missing *Unavailable
	if !errors.As(err, &missing) || !strings.Contains(missing.Hint, "bubblewrap") {
		t.Fatalf("%v", err)
	}
}

// TestALookThatIsCutOffSaysNothingOfTheMachine: who is interrupted is not told to install anything.
func TestALookThatIsCutOffSaysNothingOfTheMachine(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, mode := range []Mode{Auto, Bwrap, Landlock, Container, None} {
		var missing *Unavailable
		if _, err := Detect(ctx, mode, Options{CacheDir: t.TempDir(), Image: "none"}); !errors.Is(err, context.Canceled) || errors.As(err, &missing) {
			t.Errorf("%s: %v", mode, err)
		}
	}
}

func TestAutoFallsBackToWhatDoesNotConfine(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	s, err := Detect(context.Background(), Auto, Options{CacheDir: t.TempDir()})
	if err != nil {
		t.Skipf("no sandbox of any kind here: %v", err)
	}
	if s.Name() != "none" || s.Confines() {
		t.Errorf("%s, confines: %v", s.Name(), s.Confines())
	}
}

func TestOptionsThatCannotBeMeantAreRefused(t *testing.T) {
	for name, o := range map[string]Options{
		"no cache":      {},
		"relative read": {CacheDir: t.TempDir(), Read: []string{"cache"}},
		"relative hide": {CacheDir: t.TempDir(), Hide: []string{"data"}},
	} {
		if _, err := Detect(context.Background(), Auto, o); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if _, err := Detect(context.Background(), "docker", Options{CacheDir: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "docker") {
		t.Errorf("an unknown mode: %v", err)
	}
}

func TestACommandCannotChooseItsHomeNorRepeatAVariable(t *testing.T) {
	env := environment([]string{"HOME=/root", "A=1", "A=2", "=x", "novalue", "Z=\x00", "GOPROXY=mine"}, "/home/x", "/tmp", []string{"GOPROXY=off", "B=3"})
	want := "HOME=/home/x TMPDIR=/tmp A=1 GOPROXY=mine B=3 PATH=/usr/local/bin:/usr/bin:/bin"
	if got := strings.Join(env, " "); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
