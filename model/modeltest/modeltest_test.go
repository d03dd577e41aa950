package modeltest_test

import (
	"context"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/model/modeltest"
	"github.com/troupe-dev/troupe/model/openai"
	"github.com/troupe-dev/troupe/model/replay"
	"github.com/troupe-dev/troupe/model/script"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAScriptInProcessKeepsThePromisesOfAModel(t *testing.T) {
	modeltest.Run(t, func(_ *testing.T, s *script.Script) model.Model { return s.Model() })
}

func TestARecorderKeepsThePromisesOfTheModelThatItRecords(t *testing.T) {
	modeltest.Run(t, func(t *testing.T, s *script.Script) model.Model {
		r, err := replay.Open(filepath.Join(t.TempDir(), "claims.rec"), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
		return r.Model(s.Model(), 0)
	})
}

func TestOpenAIOverTheScriptedEndpointKeepsThePromisesOfAModel(t *testing.T) {
	for name, opts := range map[string]script.ServeOptions{
		"as it is":         {},
		"byte by byte":     {ChunkSize: 1, ChunkDelay: time.Nanosecond},
		"with a key":       {APIKey: "sk-conformance"},
		"an outage first":  {FailFirst: 1, FailStatus: 503},
		"after some delay": {Latency: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			modeltest.Run(t, func(t *testing.T, s *script.Script) model.Model { return overHTTP(t, s, opts) })
		})
	}
}

func overHTTP(t *testing.T, s *script.Script, opts script.ServeOptions) model.Model {
	srv := httptest.NewServer(script.Handler(s, opts))
	m, err := openai.New(openai.Options{
		BaseURL: srv.URL + "/v1", APIKey: openai.Key(opts.APIKey), MaxAttempts: 2,
		Sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		srv.Close()
	})
	return m
}
