package e2e

import (
	"context"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/gateway"
	"github.com/troupe-dev/troupe/model/script"
)

// stage is a runtime with a scripted model, served to a browser.
type stage struct {
	t   *testing.T
	rt  *troupe.Runtime
	ctx context.Context
	url string
	cut func() // every connection
}

// newStage starts a runtime whose model is a script of these rules.
func newStage(t *testing.T, rules string, o gateway.Options) *stage {
	t.Helper()
	return newStageOf(t, troupe.Options{Model: scripted(t, rules)}, o)
}

// scripted is a model of these rules.
func scripted(t *testing.T, rules string) troupe.Model {
	t.Helper()
	s, err := script.Parse("console.yaml", []byte("rules:\n"+rules))
	if err != nil {
		t.Fatal(err)
	}
	return s.Model()
}

// newStageOf starts a runtime.
func newStageOf(t *testing.T, with troupe.Options, o gateway.Options) *stage {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	rt, err := troupe.New(ctx, with)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.Close(context.WithoutCancel(ctx)); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	server := httptest.NewServer(gateway.New(rt, o))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return &stage{t: t, rt: rt, ctx: ctx, url: server.URL, cut: server.CloseClientConnections}
}

// session makes one that asks, in a folder of its own with some files.
func (h *stage) session(o troupe.SessionOptions, files map[string]string) (*troupe.Session, string) {
	h.t.Helper()
	dir := h.t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			h.t.Fatal(err)
		}
	}
	o.Dir, o.Ask = dir, true
	s, err := h.rt.Session(h.ctx, o)
	if err != nil {
		h.t.Fatal(err)
	}
	return s, dir
}
