package workspace

import (
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of a path, in bytes.
const (
	MaxPath      = 4096
	MaxComponent = 255
)

// TempPrefix begins the names of files that are being written. They are hidden from listings and
// can be swept when a crash left them (see RemoveStale).
const TempPrefix = ".troupe-tmp-"

// access is what a caller is about to do with a path.
type access string

const (
	reading  access = "read"
	listing  access = "list"
	writing  access = "write"
	making   access = "make"
	removing access = "remove"
	moving   access = "move"
)

func (a access) changes() bool { return a != reading && a != listing }

// invisible are the characters that make a name read differently from what it is: controls,
// bidirectional marks, zero-width and other format characters, line separators.
func invisible(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) || r == '\u034f' ||
		r == '\u115f' || r == '\u1160' || r == '\u3164' || r == '\uffa0'
}

// clean splits path into components below the root. Nothing is expanded, decoded or trimmed;
// empty components and "." vanish, ".." stays and is walked through links later. mustDir tells
// that the path ended in a slash or dot, so that only a directory will do. roots are the absolute
// names by which callers may know the root.
func clean(op access, path string, roots []string) (parts []string, mustDir bool, err error) {
	bad := func(reason string) ([]string, bool, error) {
		return nil, false, deny(string(op), CodeInvalidPath, visible(path), reason)
	}
	switch {
	case path == "":
		return bad("the path is empty")
	case len(path) > MaxPath:
		return bad("the path is longer than 4096 bytes")
	case !utf8.ValidString(path):
		return bad("the path is not valid UTF-8")
	case strings.IndexFunc(path, invisible) >= 0:
		return bad("the path holds a control or invisible character")
	}
	rest := hostSlashes(path)
	if rooted(rest) {
		below, ok := belowAny(rest, roots)
		if !ok {
			return bad("the path leads out of the workspace")
		}
		rest = below
	}
	for part := range strings.SplitSeq(rest, "/") {
		if len(part) > MaxComponent {
			return bad("a component of the path is longer than 255 bytes")
		}
		if part != "" && part != "." {
			parts = append(parts, part)
		}
	}
	if !filepath.IsLocal(filepath.FromSlash(joined(parts))) {
		return bad("the path leads out of the workspace")
	}
	last := rest[strings.LastIndexByte(rest, '/')+1:]
	mustDir = last == "" || last == "." || last == ".."
	for _, part := range parts {
		if err := guard(op, part, path); err != nil {
			return nil, false, err
		}
		if !hostName(part) {
			return bad("a component of the path is not allowed on this system")
		}
	}
	return parts, mustDir, nil
}

// windowsName says whether a component means on Windows what it says: it refuses alternate streams (`x:y`), which would reach a
// protected name under another one, the trailing dots and spaces that the system drops, and the names of devices, whatever
// follows them after a dot.
func windowsName(name string) bool {
	if name == ".." {
		return true
	}
	if strings.ContainsAny(name, `:<>"|?*`) || strings.TrimRight(name, ". ") != name {
		return false
	}
	stem, _, _ := strings.Cut(name, ".")
	stem = strings.ToUpper(strings.TrimRight(stem, " "))
	switch stem {
	case "CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$", "CLOCK$":
		return false
	}
	port := strings.TrimPrefix(strings.TrimPrefix(stem, "COM"), "LPT")
	return port == stem || !slices.Contains([]string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "\u00b9", "\u00b2", "\u00b3"}, port)
}

// joined is the relative path of components, "." for none.
func joined(parts []string) string {
	if len(parts) == 0 {
		return "."
	}
	return strings.Join(parts, "/")
}

func rooted(path string) bool {
	return strings.HasPrefix(path, "/") || filepath.VolumeName(filepath.FromSlash(path)) != ""
}

// belowAny makes an absolute path relative to the first root that holds it, component by
// component: `/work-evil` is not below `/work`.
func belowAny(path string, roots []string) (string, bool) {
	for _, root := range roots {
		root = strings.TrimSuffix(filepath.ToSlash(root), "/")
		rest, ok := strings.CutPrefix(path, root)
		if ok && (rest == "" || rest[0] == '/') {
			return strings.TrimLeft(rest, "/"), true
		}
	}
	return "", false
}

// guard refuses protected names (W2).
func guard(op access, name, path string) error {
	folded := strings.ToLower(strings.TrimRight(name, ". "))
	switch {
	case folded == ".troupe", folded == "troupe~1":
		return deny(string(op), CodeDenied, path, ".troupe belongs to troupe itself")
	case !op.changes():
		return nil
	case folded == ".git", folded == "git~1":
		return deny(string(op), CodeDenied, path, ".git is never written by file tools")
	case strings.HasPrefix(folded, TempPrefix):
		return deny(string(op), CodeDenied, path, "the name is kept for files that are being written")
	}
	return nil
}

// visible replaces what would disturb a terminal or a reader in an error text, and shortens it.
func visible(path string) string {
	if len(path) > 256 {
		path = path[:256] + "..."
	}
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || invisible(r) {
			return '?'
		}
		return r
	}, path)
}
