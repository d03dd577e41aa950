package arch

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// guides are the texts whose every command must work as it stands there.
func guides() []string { return []string{"README.md", "CONTRIBUTING.md", "SECURITY.md"} }

func TestReadmeNamesOnlyTargetsOfTheMakefile(t *testing.T) {
	h := openHouse(t)
	makefile := readText(t, h.dir, "Makefile")
	for _, guide := range guides() {
		for _, c := range commandsIn(readText(t, h.dir, guide)) {
			if c[0] != "make" || len(c) < 2 {
				continue
			}
			if !strings.Contains(makefile, "\n"+c[1]+":") {
				t.Errorf("%s says `make %s`: the Makefile has no such target", guide, c[1])
			}
		}
	}
}

// The program itself is asked: its help names the command and each flag.
func TestReadmeNamesOnlyCommandsOfTheProgram(t *testing.T) {
	h := openHouse(t)
	program := buildProgram(t, h.dir)
	for _, guide := range guides() {
		for _, c := range commandsIn(readText(t, h.dir, guide)) {
			if c[0] != "troupe" || len(c) < 2 {
				continue
			}
			words, flags := split(c[1:])
			help := helpOf(t, program, words)
			if !knows(help, words) {
				t.Errorf("%s says `%s`: troupe has no such command", guide, strings.Join(c, " "))
			}
			for _, flag := range flags {
				if !strings.Contains(help, flag) {
					t.Errorf("%s says `%s`: the command has no flag %s", guide, strings.Join(c, " "), flag)
				}
			}
		}
	}
}

func TestReadmeLinksToFilesThatExist(t *testing.T) {
	h := openHouse(t)
	link := regexp.MustCompile(`\]\(([^)#]+)`)
	for _, guide := range guides() {
		for _, m := range link.FindAllStringSubmatch(readText(t, h.dir, guide), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(h.dir, filepath.FromSlash(m[1]))); err != nil {
				t.Errorf("%s links to %s: %v", guide, m[1], err)
			}
		}
	}
}

func TestReadmeCommandsAreFoundInFencesAndInLine(t *testing.T) {
	text := "Type `make run`, or `troupe ls sessions`.\n\n```sh\n" +
		"OPENAI_API_KEY=... ./bin/troupe run -m m \"make it so\" --trust full  # a comment\nls\n```\n" +
		"We make things. ```\n"
	got := commandsIn(text)
	want := [][]string{
		{"make", "run"},
		{"troupe", "ls", "sessions"},
		{"troupe", "run", "-m", "m", `"make it so"`, "--trust", "full"},
	}
	if len(got) != len(want) {
		t.Fatalf("commands %q, want %q", got, want)
	}
	for i := range want {
		if !slices.Equal(got[i], want[i]) {
			t.Errorf("command %d is %q, want %q", i, got[i], want[i])
		}
	}
}

// commandsIn finds what a text tells people to type: lines of fenced code and code in a line
// that call make or troupe, as words; quoted ones keep their quotes.
func commandsIn(text string) [][]string {
	var found [][]string
	inline := regexp.MustCompile("`([^`]+)`")
	fenced := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
			continue
		}
		pieces := []string{line}
		if !fenced {
			pieces = nil
			for _, m := range inline.FindAllStringSubmatch(line, -1) {
				pieces = append(pieces, m[1])
			}
		}
		for _, piece := range pieces {
			if words := command(piece); words != nil {
				found = append(found, words)
			}
		}
	}
	return found
}

// command returns the words of a call of make or troupe, nil for anything else.
func command(line string) []string {
	word := regexp.MustCompile(`"[^"]*"|'[^']*'|[^\s]+`)
	setting := regexp.MustCompile(`^[A-Z_]+=`)
	words := word.FindAllString(strings.TrimPrefix(line, "$ "), -1)
	for len(words) > 0 && setting.MatchString(words[0]) {
		words = words[1:]
	}
	if i := slices.Index(words, "#"); i >= 0 {
		words = words[:i]
	}
	if len(words) == 0 {
		return nil
	}
	words[0] = strings.TrimPrefix(words[0], "./bin/")
	if words[0] != "make" && words[0] != "troupe" {
		return nil
	}
	return words
}

// split takes a command's own words (at most two) and its flags out of a call.
func split(args []string) (words, flags []string) {
	name := regexp.MustCompile(`^[a-z][a-z-]*$`)
	for i, arg := range args {
		switch {
		case strings.HasPrefix(arg, "-") && arg != "-":
			flag, _, _ := strings.Cut(arg, "=")
			flags = append(flags, flag)
		case i < 2 && len(words) == i && name.MatchString(arg):
			words = append(words, arg)
		}
	}
	return words, flags
}

// knows tells whether a help text is that of a command: its name after the program's, and the
// word below it, which may be an argument of a closed set.
func knows(help string, words []string) bool {
	if len(words) > 0 && !strings.Contains(help, "troupe "+words[0]) {
		return false
	}
	return len(words) < 2 || strings.Contains(help, words[1])
}

// helpOf returns what a command says about itself; help topics say it without a flag.
func helpOf(t *testing.T, program string, words []string) string {
	t.Helper()
	args := append(slices.Clone(words), "--help")
	prefix := ""
	if len(words) > 0 && words[0] == "help" {
		args, prefix = words, "troupe "+strings.Join(words, " ")+"\n"
	}
	run := exec.CommandContext(t.Context(), program, args...)
	run.Env = []string{"HOME=" + t.TempDir()}
	out, err := run.CombinedOutput()
	if err != nil {
		t.Errorf("troupe %s: %v", strings.Join(args, " "), err)
		return string(out)
	}
	return prefix + string(out)
}

func buildProgram(t *testing.T, dir string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "troupe")
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/troupe")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build cmd/troupe: %v\n%s", err, out)
	}
	return program
}

func readText(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatalf("read a guide: %v", err)
	}
	return string(text)
}
