package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/messages"
)

// settled is a configuration in which each part has something to be changed in.
func settled() map[string]any {
	return map[string]any{
		"model":     "x",
		"providers": map[string]any{"x": map[string]any{"base_url": "http://h/v1"}},
		"models":    map[string]any{"x": map[string]any{"provider": "x", "name": "m"}},
		"agents":    map[string]any{"x": map[string]any{"policy": map[string]any{"rules": []any{map[string]any{"tool": "exec", "action": "deny"}}}}},
		"approvals": map[string]any{"rules": []any{map[string]any{"tool": "exec", "action": "deny"}}},
		"tools":     map[string]any{"exec": map[string]any{}},

		"workspaces": map[string]any{"x": map[string]any{"uri": "troupe:/sessions/x"}}, "sandbox": map[string]any{"image": "x"},
	}
}

// put sets the value at a path of the reference: NAME is x, [] the first entry.
func put(into map[string]any, path string, value any) {
	path = strings.ReplaceAll(strings.ReplaceAll(path, "tools.NAME", "tools.exec"), "NAME", "x")
	name, rest, more := strings.Cut(path, ".")
	entry := strings.TrimSuffix(name, "[]")
	switch {
	case !more:
		into[name] = value
	case entry != name:
		list, _ := into[entry].([]any)
		if list == nil {
			list = []any{map[string]any{}}
			into[entry] = list
		}
		put(list[0].(map[string]any), rest, value)
	default:
		next, _ := into[name].(map[string]any)
		if next == nil {
			next = map[string]any{}
			into[name] = next
		}
		put(next, rest, value)
	}
}

// samples are values of a setting that are not its default.
func samples(d config.Documented, dir string) []any {
	special := map[string][]any{
		"data.store": {"postgres", "memory"}, "data.persist": {"task", "manual"}, "log.level": {"debug", "error"}, "log.format": {"json"},
		"sandbox.exec": {"bwrap", "landlock", "container", "none"}, "sandbox.network": {"allow", "deny"}, "sandbox.cgroups": {"none"}, "ui.color": {"always", "never"}, "ui.theme": {"dark"},
		"server.name": {"other"}, "server.url": {"http://h:1"}, "model": {"x/other"}, "providers.NAME.api": {"responses"},
		"models.NAME.provider": {"scripted"}, "agents.NAME.protocol": {"xml"}, "models.NAME.protocol": {"xml"}, "budgets.on_exceed": {"pause"},
		"sandbox.fetch": {[]string{"10.0.0.0/8"}}, "server.tokens.NAME.scopes": {[]string{"read"}}, "workspaces.NAME.mode": {"container"}, "workspaces.NAME.uri": {"git:example.org/a/b"}, "workspaces.NAME.trust": {"full"},
		"env.inherit": {[]string{"SAMPLE"}}, "data.reserve": {"300MiB"}, "providers.NAME.api_key_command": {"echo a-key-of-a-command"},
		"providers.NAME.api_key_file": {filepath.Join(dir, "key")}, "telemetry.metrics": {false}, "hooks.timeout": {"7s"}, "providers.NAME.base_url": {"http://other/v1"},
	}
	if s := special[d.Path]; s != nil {
		return s
	}
	last := d.Path[strings.LastIndexByte(d.Path, '.')+1:]
	switch {
	case last == "unknown":
		return []any{"retry", "fail"}
	case last == "action":
		return []any{"allow", "ask"}
	case last == "arg":
		return []any{"command"}
	case last == "scope":
		return []any{"session", "agent"}
	case last == "tool":
		return []any{"write_file"}
	case strings.HasSuffix(last, "_env"):
		return []any{"SAMPLE"}
	case strings.HasSuffix(last, "listen") || last == "advertise" || last == "admin":
		return []any{"127.0.0.1:7"}
	case strings.Contains(last, "url") || strings.Contains(last, "endpoint"):
		return []any{"http://other:1"}
	}
	switch d.Type {
	case "a size":
		return []any{"300MiB"}
	case "true or false":
		return []any{true}
	case "a whole number":
		return []any{7}
	case "a duration":
		return []any{"7m"}
	case "an amount":
		return []any{"1.50"}
	case "a list of texts":
		return []any{[]string{filepath.Join(dir, "sample-"+last)}}
	}
	return []any{filepath.Join(dir, "sample-"+last)}
}

// effect is everything that the program makes of a configuration, as text.
func effect(t *testing.T, a *app, loaded *config.Loaded, dir string) string {
	t.Helper()
	var b strings.Builder
	say := func(what string, v ...any) { fmt.Fprintf(&b, "%s: %+v\n", what, v) }
	m := newModels(loaded, a.secrets)
	in := opening{loaded: loaded, models: m, dir: dir}
	log, err := a.openLog(loaded)
	if err != nil {
		t.Fatal(err)
	}
	log.logger.Debug("a")
	log.logger.Warn("b")
	text, err := os.ReadFile(log.file.Name())
	say("log", log.file.Name(), strings.Count(string(text), "\n"), strings.HasPrefix(string(text), "{"), err, log.close())
	_ = os.Remove(log.file.Name())

	o, err := a.runtimeOptions(t.Context(), in, nil)
	say("options", o.Modes, o.Offers, o.DataDir, o.ServerName, o.Limits, o.IdleAfter, o.Retention, o.Trim, o.Budget, o.ProviderLimits, o.ToolTimes, o.WithoutTools, o.Unknown, o.Agents, o.MCP, o.Store != nil, err)
	if o.Store != nil {
		defer o.Store.Close()
	}
	env, err := o.Env("ws", nil, messages.Trust_FULL)
	say("environment", env, err)
	rules, err := configRules(loaded)
	say("rules", rules, err)
	say("persistence", persistPolicy(loaded))
	for _, name := range []string{"", "x", "x/m"} {
		found, err := loaded.Config.Resolve(name)
		r, rerr := m.Resolve(name)
		if r != nil {
			say("model "+name, r.Name, r.Provider, r.Price, r.Context, r.XML, r.Fallback)
		}
		c := clientOptions(found.Service)
		say("model "+name, err, rerr, c.API, c.BaseURL, c.MaxAttempts, c.RequestTimeout)
	}
	key, err := m.keys.key(context.Background(), "x")
	say("key", key.Reveal(), err)
	say("sandbox", sandboxOptions(loaded, nil).Read, sandboxOptions(loaded, nil).Image, sandboxOptions(loaded, nil).Limits, sandboxOptions(loaded, nil).NoGroups, reach(loaded), loaded.Config.Sandbox.Exec, loaded.Config.Sandbox.Network == "deny")
	say("serve", loaded.Config.Server.Listen, loaded.Config.Server.Admin, loaded.Config.Server.Grace, loaded.Config.Server.TLS, loaded.Config.Server.Roots, loaded.Config.Server.Conns, loaded.Config.Server.PerIP, clientApproval(loaded))
	tokens, err := configured(loaded)
	say("tokens", len(tokens), err)
	say("hooks", loaded.Config.Hooks)
	traces, err := a.tracing(loaded, nil)
	say("telemetry", traces.Exporter, traces.Endpoint, err, counting(loaded) != nil)
	say("colour", a.styleFor(true).on, a.styleFor(false).on)
	if loaded.Config.Server.URL != "" {
		_, err := a.openHouse(t.Context(), in)
		say("server", err)
	}
	unknown := checkAgent(loaded, "nobody").(*exitError) //nolint:errorlint,forcetypeassert // that is what it makes
	say("agent", unknown.hint)
	_, reserve, _ := strings.Cut(checkSpace(t.Context(), &patient{app: a, loaded: loaded}).Message, " at ") // what is free changes
	say("space", reserve)
	return b.String()
}

// TestEverySettingCountsOrIsRefused walks the reference: what can be written and is neither heeded nor
// refused would be a lie. Settings of the sandbox are heeded where commands are run.
func TestEverySettingCountsOrIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "key"), []byte("a-key-of-a-file"), 0o600); err != nil {
		t.Fatal(err)
	}
	load := func(tree map[string]any) (*app, *config.Loaded) {
		t.Helper()
		text, err := yaml.Marshal(tree)
		file := filepath.Join(dir, "config.yaml")
		if err == nil {
			err = os.WriteFile(file, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		a := &app{out: io.Discard, err: io.Discard, cwd: dir, secrets: config.NewRedactor(), env: config.Env{
			"HOME": dir, "PATH": os.Getenv("PATH"), "SAMPLE": "a-sample-value", "TROUPE_DATA": filepath.Join(dir, "data"),
		}}
		a.flags.config = file
		if strings.Contains(string(text), "dir:") {
			delete(a.env, "TROUPE_DATA")
		}
		loaded, err := a.load("")
		if err != nil {
			t.Fatalf("%s\n%v", text, err)
		}
		return a, loaded
	}
	a, loaded := load(settled())
	plain := effect(t, a, loaded, dir)
	if p := loaded.NotYet(); len(p) > 0 {
		t.Fatalf("the plain configuration is refused: %v", p)
	}
	a, loaded = load(settled())
	if again := effect(t, a, loaded, dir); again != plain {
		t.Fatalf("the same configuration has another effect each time: nothing would be shown\n%s\n%s", plain, again)
	}
	for _, d := range config.Reference() {
		if !d.Settable {
			continue
		}
		for _, value := range samples(d, dir) {
			tree := settled()
			put(tree, d.Path, value)
			a, loaded := load(tree)
			refused := loaded.NotYet()
			counts := effect(t, a, loaded, dir) != plain
			if len(refused) == 0 && !counts {
				t.Errorf("%s: %v counts nowhere and is not refused", d.Path, value)
			}
			if len(refused) > 0 && !strings.Contains(refused.Error(), "not supported yet") && !strings.Contains(refused.Error(), "is not taken here\n") {
				t.Errorf("%s: %v is refused with %v", d.Path, value, refused)
			}
		}
	}
}
