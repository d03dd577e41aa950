package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// mount is one line of the view of the file system that a confined command gets.
type mount struct {
	kind string // ro, rw, link, tmpfs, mask
	src  string // host path; of a link, its target
	dst  string
}

// etc is what of /etc programs need to find names, certificates, libraries and the time.
var etc = []string{ //nolint:gochecknoglobals // a constant list
	"alternatives", "ca-certificates", "crypto-policies", "debian_version", "group", "hosts", "host.conf",
	"gai.conf", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types", "nsswitch.conf",
	"os-release", "passwd", "pki", "protocols", "resolv.conf", "services", "ssl", "timezone",
}

// systemMounts is the part of the view that is the same for every command: the system and the
// toolchains, all of it read-only.
func systemMounts(o *Options, t *toolchains) []mount {
	var m []mount
	for _, dir := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store"} {
		info, err := os.Lstat(dir)
		switch {
		case err != nil:
		case info.Mode()&os.ModeSymlink != 0:
			if target, err := os.Readlink(dir); err == nil {
				m = append(m, mount{"link", target, dir})
			}
		default:
			m = append(m, mount{"ro", dir, dir})
		}
	}
	for _, name := range etc {
		if p := existing("/etc/" + name); p != "" {
			m = append(m, mount{"ro", p, p})
		}
	}
	for _, dir := range slices.Concat(t.read(), programFolders(), o.Read) {
		if dir = existing(dir); dir != "" {
			m = append(m, mount{"ro", dir, dir})
		}
	}
	return m
}

// programFolders are those on this process's PATH, unless one is so high that a home or the
// system's private files would be seen with it.
func programFolders() []string {
	user, err := os.UserHomeDir()
	if err != nil {
		return nil
	}
	var dirs []string
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		dir = existing(dir)
		private := dir == "" || isBelow(user, dir) || isBelow("/etc", dir) || isBelow("/var/lib", dir) || isBelow("/tmp", dir)
		if !private {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// isBelow tells whether path is dir or lies below it.
func isBelow(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// commandMounts completes the view for one command: its workspace and home, which can be
// written, and what is hidden again inside of them.
func commandMounts(o *Options, system []mount, workspace, home, temp string, readOnly bool) []mount {
	kind := "rw"
	if readOnly {
		kind = "ro"
	}
	m := slices.Clone(system)
	m = append(m, mount{"tmpfs", "", "/tmp"}, mount{"tmpfs", "", "/dev/shm"}, mount{kind, home, home})
	if temp != "" {
		m = append(m, mount{"rw", temp, temp})
	}
	m = append(m, mount{kind, workspace, workspace}, mount{"mask", "", filepath.Join(workspace, troupeFolder)})
	for _, hidden := range o.Hide {
		seen := slices.ContainsFunc(m, func(v mount) bool {
			return (v.kind == "ro" || v.kind == "rw") && v.dst != hidden && isBelow(hidden, v.dst)
		})
		if existing(hidden) != "" && seen && hidden != workspace {
			m = append(m, mount{"mask", "", hidden})
		}
	}
	// A folder comes before what lies below it, so that nothing is covered by accident; of two
	// for one place the later counts, which is why the workspace comes last.
	slices.SortStableFunc(m, func(a, b mount) int {
		return strings.Count(strings.TrimSuffix(a.dst, "/"), "/") - strings.Count(strings.TrimSuffix(b.dst, "/"), "/")
	})
	return m
}

// arguments writes mounts as bwrap reads them.
func arguments(mounts []mount, scratch int64) []string {
	args := []string{"--proc", "/proc", "--dev", "/dev"}
	last := []string{"--remount-ro", "/dev"}
	for _, m := range mounts {
		switch m.kind {
		case "ro":
			args = append(args, "--ro-bind", m.src, m.dst)
		case "rw":
			args = append(args, "--bind", m.src, m.dst)
		case "link":
			args = append(args, "--symlink", m.src, m.dst)
		case "tmpfs":
			args = append(args, "--perms", "1777", "--size", strconv.FormatInt(scratch, 10), "--tmpfs", m.dst)
		case "mask":
			args = append(args, "--perms", "0700", "--size", "4096", "--tmpfs", m.dst)
			last = append(last, "--remount-ro", m.dst)
		}
	}
	return append(append(args, last...), "--remount-ro", "/")
}

// checkWorkspace refuses folders that cannot be shown to a command without showing all.
func checkWorkspace(dir string) error {
	if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir {
		return fmt.Errorf("the workspace folder %q is not an absolute, clean path", dir)
	}
	for _, whole := range []string{"/", "/proc", "/sys", "/dev", "/etc", "/usr", "/var", "/bin", "/lib"} {
		if dir == whole {
			return fmt.Errorf("the workspace folder %s is a part of the system", dir)
		}
	}
	return nil
}
