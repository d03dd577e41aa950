package tools

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"
)

// blockedRanges are where no fetch goes unless Context.Reach names it: addresses of this machine, of private and
// provider networks, for tests and documentation, and those in which an IPv4 address may hide.
var blockedRanges = func() []netip.Prefix { //nolint:gochecknoglobals // a constant list
	var all []netip.Prefix
	for _, s := range []string{
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24",
		"192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",
		"::/96", "::1/128", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
		"fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
	} {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}()

// blockedError is an address that a call may not reach.
type blockedError struct{ addr netip.Addr }

func (e *blockedError) Error() string {
	return fmt.Sprintf("it leads to %s, which is no public address", e.addr)
}

// fetchNet is what a fetch knows of the network: one per call, so that nothing is kept from one to the next.
type fetchNet struct {
	reach     []netip.Prefix
	resolver  *net.Resolver
	transport *http.Transport
}

// newTransport asks no proxy, speaks HTTP/1.1, keeps no connection and looks at each address in the moment before the
// connection is made: an answer of the name service that was checked before could have changed since.
func (n *fetchNet) newTransport(roots *x509.CertPool) *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, Resolver: n.resolver, Control: func(network, address string, _ syscall.RawConn) error {
		ap, err := netip.ParseAddrPort(address)
		if err != nil || !strings.HasPrefix(network, "tcp") {
			return fmt.Errorf("dial %s %s: not an address of TCP", network, address)
		}
		return n.may(ap.Addr())
	}}
	return &http.Transport{
		DialContext: dialer.DialContext, DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: maxFetchHeaders,
		TLSHandshakeTimeout: 10 * time.Second, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
	}
}

// may refuses an address that is blocked and not within reach.
func (n *fetchNet) may(addr netip.Addr) error {
	return Reachable(n.reach, addr)
}

// Reachable refuses an address that is not public, unless reach holds it: for all that connects where others say.
func Reachable(reach []netip.Prefix, addr netip.Addr) error {
	plain := addr.WithZone("").Unmap()
	in := func(p netip.Prefix) bool { return p.Contains(plain) }
	if slices.ContainsFunc(reach, in) {
		return nil
	}
	if addr.Zone() != "" || !plain.IsValid() || slices.ContainsFunc(blockedRanges, in) {
		return &blockedError{plain}
	}
	return nil
}

// parse reads an address and refuses what can be refused before a name is looked up.
func (n *fetchNet) parse(address string) (*url.URL, error) {
	if len(address) > maxFetchURL {
		return nil, refuse("argument \"url\" has %d bytes; at most %d are taken", len(address), maxFetchURL)
	}
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, refuse("argument \"url\" is no address: %s", cleanName(err.Error()))
	case u.Scheme != "http" && u.Scheme != "https":
		if u.Scheme == "" {
			return nil, refuse("argument \"url\" must begin with https:// or http://")
		}
		return nil, denyFetch(address, "only http and https are fetched")
	case u.User != nil:
		return nil, refuse("argument \"url\" holds a user name: nobody is logged in anywhere")
	case u.Opaque != "" || u.Hostname() == "":
		return nil, refuse("argument \"url\" names no host")
	}
	u.Fragment, u.RawFragment = "", ""
	host := u.Hostname()
	if addr, err := netip.ParseAddr(host); err == nil {
		if err := n.may(addr); err != nil {
			return nil, denyFetch(address, err.Error())
		}
		return u, nil
	}
	return u, n.name(address, host)
}

// name refuses names of hosts that are none: numbers in a disguise that a resolver may see through, and what is always
// this machine.
func (n *fetchNet) name(address, host string) error {
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	last := name[strings.LastIndexByte(name, '.')+1:]
	switch {
	case strings.ContainsFunc(name, func(r rune) bool { return r > 0x7f }):
		return refuse("argument \"url\": write the host %s in its ASCII form (xn--...)", cleanName(host))
	case name == "" || strings.ContainsFunc(name, notOfName):
		return denyFetch(address, "its host is no name")
	case last == "" || last[0] >= '0' && last[0] <= '9': // no top-level domain begins so, as every spelling of a number does
		return denyFetch(address, "its host is a number: write an address as four decimal numbers or as IPv6")
	case name == "localhost" || last == "localhost" || name == "localhost.localdomain":
		if n.may(netip.AddrFrom4([4]byte{127, 0, 0, 1})) != nil {
			return denyFetch(address, "it is this machine")
		}
	}
	return nil
}

func notOfName(r rune) bool {
	return r != '-' && r != '_' && r != '.' && (r < '0' || r > '9') && (r < 'a' || r > 'z')
}

// check looks a host up without connecting to it, and refuses it if any of its addresses is blocked.
func (n *fetchNet) check(ctx context.Context, u *url.URL) error {
	if _, err := netip.ParseAddr(u.Hostname()); err == nil {
		return nil // parse has looked at it
	}
	addrs, err := n.resolver.LookupNetIP(ctx, "ip", u.Hostname())
	if err != nil {
		return nil //nolint:nilerr // nothing is fetched from there: whether it exists the next call finds out
	}
	for _, a := range addrs {
		if err := n.may(a); err != nil {
			return denyFetch(u.String(), err.Error())
		}
	}
	return nil
}
