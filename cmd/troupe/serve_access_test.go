package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// certify writes a certificate for loopback with a number, and its key.
func (m *machine) certify(number int64) {
	m.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		m.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(number), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		m.t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		m.t.Fatal(err)
	}
	m.write("key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})))
	m.write("cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
}

// withTLS is a configuration with that certificate.
func (m *machine) withTLS() string {
	cert, key := m.folder("cert.pem"), m.folder("key.pem")
	return "server: {tls: {cert: " + cert + ", key: " + key + ", ca: " + cert + "}}\n"
}

func TestTheFirstTokenClosesTheNetworkAndLeavesTheSocketItsOwner(t *testing.T) {
	m := newMachine(t)
	s := m.serve()
	if code, _, stderr := m.run("ls", "sessions", "--server", s.url); code != 0 {
		t.Fatalf("a server without tokens is closed: %d %s", code, stderr)
	}
	code, secret, stderr := m.run("token", "create", "phone", "--scope", "read,prompt", "--expires", "1h")
	secret = strings.TrimSpace(secret)
	if code != 0 || !strings.HasPrefix(secret, "troupe_") {
		t.Fatalf("create ended with %d: %s%s", code, secret, stderr)
	}
	code, _, stderr = m.run("ls", "sessions", "--server", s.url)
	if code != exitDenied || !strings.Contains(stderr, "token") {
		t.Errorf("without the token: %d %s", code, stderr)
	}
	if code, _, stderr := m.run("ls", "sessions"); code != 0 {
		t.Errorf("on the socket: %d %s", code, stderr)
	}
	m.env = []string{"TROUPE_TOKEN=" + secret}
	if code, _, stderr := m.run("ls", "sessions", "--server", s.url); code != 0 {
		t.Errorf("with the token: %d %s", code, stderr)
	}
	code, _, stderr = m.run("run", "hello", "-C", "a", "-m", "scripted/echo", "--server", s.url)
	if code != exitDenied || !strings.Contains(stderr, "roots") {
		t.Errorf("a folder outside the roots: %d %s", code, stderr)
	}
	if code, _, stderr := m.run("stop", "--server", s.url); code != exitDenied {
		t.Errorf("a token without scope admin stops the server: %d %s", code, stderr)
	}
	if code, out, _ := m.run("token", "ls"); code != 0 || !strings.Contains(out, "phone") || strings.Contains(out, secret) {
		t.Errorf("ls: %d %s", code, out)
	}
	if code, _, stderr := m.run("token", "revoke", "phone"); code != 0 {
		t.Fatalf("revoke: %d %s", code, stderr)
	}
	if code, _, _ := m.run("ls", "sessions", "--server", s.url); code != exitDenied {
		t.Errorf("with a token that was revoked: %d", code)
	}
	m.env = nil
	if code, _, _ := m.run("ls", "sessions", "--server", s.url); code != exitDenied {
		t.Errorf("the last token's end opens the server: %d", code)
	}
	s.signal(os.Interrupt)
	_, _ = s.wait()
	if log := s.stderr.String(); strings.Contains(log, secret) {
		t.Error("the token stands in what the server says")
	}
}

func TestAnAddressThatOthersReachNeedsACertificateAndAToken(t *testing.T) {
	m := newMachine(t)
	code, _, stderr := m.run("serve", "--listen", "0.0.0.0:0")
	if code != exitDenied || !strings.Contains(stderr, "certificate") || !strings.Contains(stderr, "--listen") {
		t.Errorf("without a certificate: %d %s", code, stderr)
	}
	m.certify(1)
	config := m.write("c.yaml", m.withTLS())
	code, _, stderr = m.run("serve", "--listen", "0.0.0.0:0", "--config", config)
	if code != exitDenied || !strings.Contains(stderr, "no token") {
		t.Errorf("without a token: %d %s", code, stderr)
	}
}

func TestACertificateThatChangesCountsWithoutARestart(t *testing.T) {
	m := newMachine(t)
	m.certify(1)
	config := m.write("c.yaml", m.withTLS())
	s := &served{m: m, running: m.start("serve", "--listen", "127.0.0.1:0", "--config", config)}
	line, err := s.out.ReadString('\n')
	if err != nil {
		_, _ = s.wait()
		t.Fatal(s.stderr.String())
	}
	s.url = strings.TrimSpace(line)
	if code, _, stderr := m.run("ls", "sessions", "--server", s.url, "--config", config); code != 0 {
		t.Errorf("over https: %d %s", code, stderr)
	}
	if code, _, _ := m.run("ls", "sessions", "--server", s.url); code != exitUnreachable {
		t.Errorf("a certificate that nobody vouches for is believed: %d", code)
	}
	shown := func() int64 {
		c, err := tls.Dial("tcp", strings.TrimPrefix(s.url, "https://"), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return 0
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	if got := shown(); got != 1 {
		t.Errorf("certificate %d", got)
	}
	m.certify(2)
	m.eventually("the new certificate does not come", func() bool { return shown() == 2 })
	m.write("cert.pem", "nonsense")
	if got := shown(); got != 2 {
		t.Errorf("after nonsense certificate %d", got)
	}
	if res, err := http.Get("http://" + strings.TrimPrefix(s.url, "https://") + "/livez"); err == nil {
		res.Body.Close()
		if res.StatusCode == 200 {
			t.Error("it answers in plain text")
		}
	}
	s.signal(os.Interrupt)
	_, _ = s.wait()
}
