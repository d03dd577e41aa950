package main

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/model"
)

// keyTime is how long the result of an api_key_command is used: it may ask a person or a network.
const keyTime = 15 * time.Minute

// keys gives the keys of providers. Variables and files are read for every request, so that a new
// key counts at once; a command is run again when its result is old, or was refused. What it gives
// is known to the redactor before anybody else gets it. It is safe for concurrent use.
type keys struct {
	loaded  *config.Loaded
	secrets *config.Redactor
	now     func() time.Time

	mu   sync.Mutex // held while a command runs: those who come meanwhile get the same result
	kept map[string]keptKey
}

type keptKey struct {
	key   config.Secret
	until time.Time
}

func newKeys(loaded *config.Loaded, secrets *config.Redactor) *keys {
	return &keys{loaded: loaded, secrets: secrets, now: time.Now, kept: map[string]keptKey{}}
}

// key gives the key of a provider. Its errors are those of config.Loaded.Key.
func (k *keys) key(ctx context.Context, provider string) (config.Secret, error) {
	if k.loaded.Config.Providers[provider].APIKeyCommand == "" {
		return k.fresh(ctx, provider)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if kept, ok := k.kept[provider]; ok && k.now().Before(kept.until) {
		return kept.key, nil
	}
	key, err := k.fresh(ctx, provider)
	if err == nil {
		k.kept[provider] = keptKey{key, k.now().Add(keyTime)}
	}
	return key, err
}

func (k *keys) fresh(ctx context.Context, provider string) (config.Secret, error) {
	key, err := k.loaded.Key(ctx, provider)
	if err == nil {
		k.secrets.Learn(key)
	}
	return key, err
}

// forget drops the kept key of a provider and tells whether there was one.
func (k *keys) forget(provider string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, had := k.kept[provider]
	delete(k.kept, provider)
	return had
}

// keyed is a model whose key comes from a command: when the provider refuses a key that was kept, the
// command is asked for another one and the request made once more.
type keyed struct {
	model.Model
	provider string
	keys     *keys
}

// Attempts is the model's own; see model.Attempts.
func (m *keyed) Attempts() int { return model.Attempts(m.Model) }

// Stream implements model.Model.
func (m *keyed) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		old, _ := m.keys.key(ctx, m.provider) // when there is none, the request itself says why
		given := false
		for ev, err := range m.Model.Stream(ctx, req) {
			if !given && err != nil && m.another(ctx, err, old) {
				m.Model.Stream(ctx, req)(yield)
				return
			}
			given = true
			if !yield(ev, err) {
				return
			}
		}
	}
}

// another tells whether a request failed for its key, and there is another one now.
func (m *keyed) another(ctx context.Context, err error, old config.Secret) bool {
	var refused *model.Error
	if !errors.As(err, &refused) || refused.Class != model.Auth || !m.keys.forget(m.provider) {
		return false
	}
	key, kerr := m.keys.key(ctx, m.provider)
	return kerr == nil && key.Reveal() != old.Reveal()
}
