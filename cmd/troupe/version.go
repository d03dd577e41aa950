package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version and commit are set by the linker for a release (-X main.version=... -X main.commit=...).
// A build from a checkout takes both from what the Go tool recorded.
var version, commit string //nolint:gochecknoglobals // the linker can set nothing else

// versionInfo is what `troupe version -o json` prints.
type versionInfo struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Modified bool   `json:"modified"` // built from a checkout with uncommitted changes
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

func readVersion() versionInfo {
	v := versionInfo{Version: version, Commit: commit, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if ok && v.Version == "" && info.Main.Version != "" && info.Main.Version != "(devel)" {
		v.Version = info.Main.Version
	}
	if ok {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision" && v.Commit == "":
				v.Commit = s.Value
			case s.Key == "vcs.modified":
				v.Modified = s.Value == "true"
			}
		}
	}
	if v.Version == "" {
		v.Version = "devel"
	}
	return v
}

func newVersion(a *app) *cobra.Command {
	return formats(&cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  exactly(),
		RunE: func(*cobra.Command, []string) error {
			v := readVersion()
			return a.emit(v, func(w io.Writer) error {
				short := v.Commit[:min(12, len(v.Commit))]
				if short == "" {
					short = "unknown commit"
				}
				if v.Modified {
					short += ", modified"
				}
				_, err := fmt.Fprintf(w, "troupe %s (%s) %s %s/%s\n", v.Version, short, v.Go, v.OS, v.Arch)
				return err
			})
		},
	}, "text", "json", "yaml")
}
