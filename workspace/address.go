package workspace

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Kind tells who owns a workspace.
type Kind string

// The kinds of workspace.
const (
	KindServer Kind = "server" // a folder that a troupe server keeps for one conversation
	KindClient Kind = "client" // somebody's folder, on the machine that registered the host name
	KindGit    Kind = "git"    // a clone made for the session
)

// LocalHost is the host name of the machine that runs the process.
const LocalHost = "local"

// DefaultServerName is the host of server workspaces where the configuration names no other.
const DefaultServerName = "troupe"

// MaxAddress is the length limit of an address in bytes.
const MaxAddress = 4096

// Address is a parsed workspace address. Two addresses name the same workspace exactly when
// their Canonical texts are equal. Percent signs are literal: nothing is ever decoded.
type Address struct {
	Kind      Kind
	Host      string // lower case; a registered name, or the DNS name of a git server
	Port      int    // git only, 0: none given
	Path      string // `/a/b`, `~/a/b` or, for git, `owner/repo`
	Ref       string // git only, empty: the default branch
	Subdir    string // git only, empty: the whole tree
	Canonical string
}

// ID is the hex SHA-256 of the canonical text: the key by which stores and actors name the
// workspace, so that hostile text never becomes part of a key.
func (a *Address) ID() string {
	sum := sha256.Sum256([]byte(a.Canonical))
	var text [2 * sha256.Size]byte
	hex.Encode(text[:], sum[:])
	return string(text[:])
}

// String is the canonical text.
func (a *Address) String() string { return a.Canonical }

// AddressError tells why a text is no address. Its code on the wire is `invalid_uri`.
type AddressError struct {
	Reason   string
	Position int // byte offset into the text
}

func (e *AddressError) Error() string {
	return fmt.Sprintf("invalid workspace address: %s (at byte %d)", e.Reason, e.Position)
}

// Code is the error code for envelopes and the wire.
func (e *AddressError) Code() string { return CodeInvalidURI }

func refuse(position int, reason string) *AddressError {
	return &AddressError{Reason: reason, Position: position}
}

// Parse reads an address. serverName is the configured name of this server (empty:
// DefaultServerName); a host is of kind server only when it equals that name exactly.
// Errors are *AddressError.
func Parse(uri, serverName string) (*Address, error) {
	if serverName == "" {
		serverName = DefaultServerName
	}
	if err := checkText(uri); err != nil {
		return nil, err
	}
	host, rest, found := strings.Cut(uri, ":")
	if !found {
		return nil, refuse(len(uri), "missing host separator")
	}
	at := len(host) + 1
	if strings.EqualFold(host, "git") {
		a, err := parseGit(rest, at)
		if err != nil {
			return nil, err
		}
		return a, nil
	}
	if err := checkHost(host); err != nil {
		return nil, err
	}
	path, err := hostPath(rest, at)
	if err != nil {
		return nil, err
	}
	a := &Address{Kind: KindClient, Host: strings.ToLower(host), Path: path}
	if a.Host == strings.ToLower(serverName) {
		a.Kind = KindServer
	}
	if a.Canonical = uri; a.Host != host || path != rest { // most are written as they should be
		a.Canonical = a.Host + ":" + a.Path
	}
	return a, nil
}

// checkText refuses what no part of an address may hold.
func checkText(uri string) *AddressError {
	if len(uri) > MaxAddress {
		return refuse(MaxAddress, "longer than 4096 bytes")
	}
	if !utf8.ValidString(uri) {
		return refuse(0, "not valid UTF-8")
	}
	if strings.TrimSpace(uri) != uri {
		return refuse(0, "surrounding space")
	}
	if i := strings.IndexFunc(uri, invisible); i >= 0 {
		return refuse(i, "control or invisible character")
	}
	if i := strings.IndexByte(uri, '\\'); i >= 0 {
		return refuse(i, "backslash")
	}
	return nil
}

// reserved are the names that look like schemes or like this machine.
func reserved(host string) bool {
	switch host {
	case "git", "http", "https", "ssh", "file", "ftp", "ftps", "ext", "fd", "data", "docker",
		"container", "javascript", "mailto", "localhost":
		return true
	}
	return false
}

func checkHost(host string) *AddressError {
	switch lower := strings.ToLower(host); {
	case strings.Contains(host, "/"):
		return refuse(strings.IndexByte(host, '/'), "missing host separator")
	case strings.Contains(host, "@"):
		return refuse(strings.IndexByte(host, '@'), "user info is not allowed")
	case len(host) < 2:
		return refuse(0, "host too short (drive letter?)")
	case reserved(lower):
		return refuse(0, "reserved scheme name")
	case strings.Trim(host, "0123456789.") == "":
		return refuse(0, "IP literal is not a host name")
	case len(host) > 63, strings.Contains(host, ".."), !alnum(host[0]), !alnum(host[len(host)-1]):
		return refuse(0, "bad host")
	}
	for i := range len(host) {
		if c := host[i]; !alnum(c) && c != '.' && c != '_' && c != '-' {
			return refuse(i, "bad host")
		}
	}
	return nil
}

// hostPath reads `/...` or `~...` and drops one trailing slash.
func hostPath(text string, at int) (string, *AddressError) {
	const wrongStart = "path must start with '/' or '~'"
	var lead string
	switch {
	case text == "~", text == "~/":
		return "~", nil
	case text == "/":
		return "/", nil
	case strings.HasPrefix(text, "~/"):
		lead = "~/"
	case strings.HasPrefix(text, "/"):
		lead = "/"
	default:
		return "", refuse(at, wrongStart)
	}
	segs, err := segments(text[len(lead):], at+len(lead), "path")
	if err != nil {
		return "", err
	}
	return text[:len(lead)+len(segs)], nil // segs is the text behind lead, but for a slash at its end
}

// segments checks `seg/seg/...` and drops one trailing slash; what names the part in errors.
func segments(text string, at int, what string) (string, *AddressError) {
	text = strings.TrimSuffix(text, "/")
	for seg := range strings.SplitSeq(text, "/") {
		switch {
		case seg == "":
			return "", refuse(at, what+": empty segment")
		case seg == "." || seg == "..":
			return "", refuse(at, what+": dot segment")
		case len(seg) > MaxComponent:
			return "", refuse(at, what+": segment longer than 255 bytes")
		case strings.TrimSpace(seg) != seg:
			return "", refuse(at, what+": leading or trailing space in segment")
		}
		at += len(seg) + 1
	}
	return text, nil
}

func alnum(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// Local gives the address of a folder of this machine, and its path with all links resolved:
// they are followed once, here, so that a link changed later moves nothing. It fails when dir is
// not a directory that exists, or has a name that no address can hold.
func Local(dir string) (*Address, string, error) {
	if dir == "" {
		return nil, "", refuse(0, "empty folder name")
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, "", fmt.Errorf("make folder %q absolute: %w", dir, err)
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return nil, "", fmt.Errorf("resolve folder %q: %w", dir, err)
	}
	if err := mustBeDir(real); err != nil {
		return nil, "", err
	}
	a, err := Parse(LocalHost+":"+slashed(real), LocalHost+"-is-never-a-server")
	if err != nil {
		return nil, "", fmt.Errorf("folder %q: %w", dir, err)
	}
	return a, real, nil
}

// Called is a folder of this machine as it is called, for whoever then finds it by Local: links are not followed, and it need not be
// there. A name that no address can hold is that of where its links lead.
func Called(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("make folder %q absolute: %w", dir, err)
	}
	uri := LocalHost + ":" + slashed(abs)
	if _, err := Parse(uri, ""); err == nil && dir != "" {
		return uri, nil
	}
	a, _, err := Local(dir)
	if err != nil {
		return "", err
	}
	return a.Canonical, nil
}

// slashed writes an absolute path of this machine as addresses do: `C:\x` becomes `/C:/x`.
func slashed(path string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	return path
}

func portText(port int) string {
	if port == 0 {
		return ""
	}
	return ":" + strconv.Itoa(port)
}
