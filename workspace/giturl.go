package workspace

import (
	"strconv"
	"strings"
)

// parseGit reads what follows `git:`; at is its offset in the whole text. Every part is checked
// against a closed alphabet: nothing that git could take for an option, a transport or a
// credential passes.
func parseGit(text string, at int) (*Address, *AddressError) {
	slash := strings.IndexByte(text, '/')
	authority := text
	if slash >= 0 {
		authority = text[:slash]
	}
	host, port, err := gitAuthority(authority, at, strings.HasPrefix(text[len(authority):], "//"))
	if err != nil {
		return nil, err
	}
	if slash < 0 {
		return nil, refuse(at+len(text), "git: missing repository path")
	}
	a := &Address{Kind: KindGit, Host: host, Port: port}
	if err := a.gitPath(text[slash+1:], at+slash+1); err != nil {
		return nil, err
	}
	a.Canonical = "git:" + a.Host + portText(a.Port) + "/" + a.Path
	if a.Ref != "" {
		a.Canonical += "@" + a.Ref
	}
	if a.Subdir != "" {
		a.Canonical += "//" + a.Subdir
	}
	return a, nil
}

// gitAuthority reads `dns[:port]`; schemed tells that two slashes follow it.
func gitAuthority(text string, at int, schemed bool) (string, int, *AddressError) {
	if i := strings.IndexByte(text, '@'); i >= 0 {
		return "", 0, refuse(at+i, "git: user info is not allowed")
	}
	host, portPart, hasPort := strings.Cut(text, ":")
	if hasPort && portPart == "" && schemed {
		return "", 0, refuse(at, "git: a scheme or empty host is not allowed")
	}
	port := 0
	if hasPort {
		if port = portNumber(portPart); port == 0 {
			return "", 0, refuse(at+len(host)+1, "git: bad port")
		}
	}
	if !dnsName(host) {
		return "", 0, refuse(at, "git: host must be a DNS name")
	}
	return strings.ToLower(host), port, nil
}

// portNumber reads 1..65535 in plain decimal digits; 0 means that it is no port.
func portNumber(text string) int {
	if text == "" || text[0] == '0' || strings.Trim(text, "0123456789") != "" {
		return 0
	}
	port, err := strconv.Atoi(text)
	if err != nil || port > 65535 {
		return 0
	}
	return port
}

// dnsName wants at least two labels, the last beginning with a letter: no address, no bare name.
func dnsName(host string) bool {
	labels := strings.Split(host, ".")
	if len(host) > 253 || len(labels) < 2 {
		return false
	}
	for _, label := range labels {
		if label == "" || len(label) > 63 || !alnum(label[0]) || !alnum(label[len(label)-1]) {
			return false
		}
		for i := range len(label) {
			if !alnum(label[i]) && label[i] != '-' {
				return false
			}
		}
	}
	first := labels[len(labels)-1][0]
	return first < '0' || first > '9'
}

// gitPath reads `owner/repo[/][@ref][//subdir]`. The first `//` ends the reference: a reference
// cannot hold one.
func (a *Address) gitPath(text string, at int) *AddressError {
	main, subdir, hasSubdir := text, "", false
	if i := strings.Index(text, "//"); i >= 0 {
		if strings.HasPrefix(text[i:], "///") { // the repository's own trailing slash
			i++
		}
		main, subdir, hasSubdir = text[:i], text[i+2:], true
		segs, err := segments(subdir, at+i+2, "subdir")
		if err != nil {
			return err
		}
		subdir = segs
	}
	repo, ref, hasRef := strings.Cut(main, "@")
	path, err := repository(strings.TrimSuffix(repo, "/"), at)
	if err != nil {
		return err
	}
	if hasRef && !RefName(ref) {
		return refuse(at+len(repo)+1, "git: bad ref")
	}
	a.Path, a.Ref = path, ref
	if hasSubdir {
		a.Subdir = subdir
	}
	return nil
}

func repository(text string, at int) (string, *AddressError) {
	segs := strings.Split(text, "/")
	if text == "" {
		return "", refuse(at, "git: missing repository path")
	}
	for _, seg := range segs {
		if !repoSegment(seg) {
			return "", refuse(at, "git: bad repo segment")
		}
		at += len(seg) + 1
	}
	if len(segs) < 2 {
		return "", refuse(at-1, "git: need owner/repo")
	}
	return strings.TrimSuffix(text, ".git"), nil
}

func repoSegment(seg string) bool {
	if seg == "" || len(seg) > MaxComponent || !alnum(seg[0]) && seg[0] != '_' {
		return false
	}
	for i := range len(seg) {
		if c := seg[i]; !alnum(c) && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// RefName holds the rules of `git check-ref-format --allow-onelevel`, and no leading dash.
func RefName(ref string) bool {
	if ref == "" || ref == "@" || ref[0] == '-' || strings.HasSuffix(ref, ".") ||
		strings.Contains(ref, "..") || strings.Contains(ref, "@{") || strings.ContainsAny(ref, " ~^:?*[\\") {
		return false
	}
	for part := range strings.SplitSeq(ref, "/") {
		if part == "" || part[0] == '.' || strings.HasSuffix(part, ".lock") || len(part) > MaxComponent {
			return false
		}
	}
	return true
}
