package export

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"
)

// maxAnswer bounds what is read of a collector's answer, in bytes. The exporters keep all of it, also of an error page without an end.
const maxAnswer = 64 << 10

// sendTime is how long a request may take, when the environment says nothing.
const sendTime = 10 * time.Second

// collectorClient is how a collector is reached: bounded in what it reads, and else as the variables of OpenTelemetry say, those of the signal ("TRACES", "METRICS")
// before those of all. An exporter that is given a client leaves certificates and time to it.
func collectorClient(signal string) (*http.Client, error) {
	of := func(what string) (name, value string) {
		for _, name := range []string{"OTEL_EXPORTER_OTLP_" + signal + "_" + what, "OTEL_EXPORTER_OTLP_" + what} {
			if value := os.Getenv(name); value != "" {
				return name, value
			}
		}
		return "", ""
	}
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		t = &http.Transport{}
	}
	t = t.Clone()
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if name, file := of("CERTIFICATE"); file != "" {
		pem, err := os.ReadFile(file)
		t.TLSClientConfig.RootCAs = x509.NewCertPool()
		if err == nil && !t.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
			err = fmt.Errorf("%s holds no certificate", file)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	name, cert := of("CLIENT_CERTIFICATE")
	other, key := of("CLIENT_KEY")
	if cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", cmp.Or(name, other), err)
		}
		t.TLSClientConfig.Certificates = []tls.Certificate{pair}
	}
	most := sendTime
	if name, text := of("TIMEOUT"); text != "" {
		ms, err := strconv.Atoi(text)
		if err != nil || ms <= 0 {
			return nil, fmt.Errorf("%s: it is a number of milliseconds", name)
		}
		most = time.Duration(ms) * time.Millisecond
	}
	return &http.Client{Transport: bounded{t}, Timeout: most}, nil
}

// bounded ends each answer after maxAnswer bytes, as if there were no more.
type bounded struct{ *http.Transport }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := b.Transport.RoundTrip(r)
	if err == nil {
		res.Body = &limitedBody{io.LimitReader(res.Body, maxAnswer), res.Body}
	}
	return res, err
}

type limitedBody struct {
	io.Reader
	io.Closer
}
