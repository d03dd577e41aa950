package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/config"
)

// level is how bad a finding is.
type level string

const (
	levelOK   level = "ok"
	levelWarn level = "warn" // works, but not as well as it could
	levelFail level = "fail" // does not work
)

// finding is what one check found.
type finding struct {
	Check   string `json:"id"`
	Level   level  `json:"state"`
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"`

	config bool // a failure is one of configuration
}

// patient is what checks look at. loaded is nil when the configuration cannot be read.
type patient struct {
	app    *app
	loaded *config.Loaded
	err    error // why loaded is nil
}

// check looks at one thing. It must not change anything that lasts.
type check struct {
	name string
	run  func(ctx context.Context, p *patient) finding
}

// checks is the list of doctor, in the order of the output. A new check is one more line.
func checks() []check {
	return []check{
		{"configuration", checkConfiguration},
		{"data directory", checkData},
		{"free space", checkSpace},
		{"model", checkModel},
		{"sandbox", checkSandbox},
		{"limits", checkLimits},
		{"git", checkGit},
		{"go", checkGo},
	}
}

// checksFor adds the server, where commands go to one.
func checksFor(p *patient) []check {
	all := checks()
	if p.loaded != nil && p.loaded.Config.Server.URL != "" {
		all = append(all, check{"server", serverThere})
	}
	return all
}

func newDoctor(a *app) *cobra.Command {
	var dir string
	cmd := formats(&cobra.Command{
		Use:   "doctor",
		Short: "Check this machine; each finding comes with its fix",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := &patient{app: a}
			p.loaded, p.err = a.load(dir)
			findings := examine(cmd.Context(), p)
			if err := cmd.Context().Err(); err != nil { // what was found then says nothing
				return err
			}
			if err := a.emit(findings, func(w io.Writer) error { return a.printFindings(w, findings) }); err != nil {
				return err
			}
			return silent(verdict(findings))
		},
	}, "text", "json", "yaml")
	folderFlag(cmd, &dir)
	return cmd
}

func examine(ctx context.Context, p *patient) []finding {
	var out []finding
	for _, c := range checksFor(p) {
		if ctx.Err() != nil {
			break
		}
		f := c.run(ctx, p)
		f.Check = c.name
		out = append(out, f)
	}
	return out
}

// verdict is the exit code: configuration first, since it is what one corrects first.
func verdict(findings []finding) int {
	code := exitDone
	for _, f := range findings {
		switch {
		case f.Level == levelFail && f.config:
			return exitConfig
		case f.Level == levelFail:
			code = exitFailed
		}
	}
	return code
}

func (a *app) printFindings(w io.Writer, findings []finding) error {
	s := a.styleFor(a.outTerm)
	for _, f := range findings {
		word := fmt.Sprintf("%-4s", f.Level)
		switch f.Level {
		case levelOK:
			word = s.good(word)
		case levelWarn:
			word = s.warn(word)
		case levelFail:
			word = s.bad(word)
		}
		text := fmt.Sprintf("%s  %-15s %s\n", word, f.Check, indent(f.Message, 22))
		if f.Fix != "" {
			text += fmt.Sprintf("      %-15s fix: %s\n", "", indent(f.Fix, 27))
		}
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
	}
	return nil
}

// indent shifts the lines after the first.
func indent(s string, n int) string {
	return strings.ReplaceAll(visible(s), "\n", "\n"+strings.Repeat(" ", n))
}
