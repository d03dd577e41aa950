package config

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestVariableNamesThePathOfASetting(t *testing.T) {
	cases := []struct {
		name, value string
		got         func(*Config) any
		want        any
	}{
		{"TROUPE_SERVER__NAME", "monad-server", func(c *Config) any { return c.Server.Name }, "monad-server"},
		{"TROUPE_SERVER", "http://127.0.0.1:1", func(c *Config) any { return c.Server.URL }, "http://127.0.0.1:1"},
		{"TROUPE_DATA", "/d", func(c *Config) any { return c.Data.Dir }, "/d"},
		{"TROUPE_MODEL", "openai/x", func(c *Config) any { return c.Model }, "openai/x"},
		{"TROUPE_LEASE__HOLD", "5s", func(c *Config) any { return c.Lease.Hold }, 5 * time.Second},
		{"TROUPE_DATA__RESERVE", "1GiB", func(c *Config) any { return c.Data.Reserve }, Size(1 << 30)},
		{"TROUPE_BUDGETS__USD", "0.5", func(c *Config) any { return c.Budgets.USD }, USD(500_000)},
		{"TROUPE_TELEMETRY__METRICS", "false", func(c *Config) any { return c.Telemetry.Metrics }, false},
		{"TROUPE_ENV__INHERIT", "A, B", func(c *Config) any { return c.Env.Inherit }, []string{"A", "B"}},
		{"TROUPE_PROVIDERS__MY_LAB__BASE_URL", "http://h/v1", func(c *Config) any { return c.Providers["my-lab"].BaseURL }, "http://h/v1"},
		{"TROUPE_PROVIDERS__OTHER__BASE_URL", "http://h/v1", func(c *Config) any { return c.Providers["other"].BaseURL }, "http://h/v1"},
		{"TROUPE_MCP__X__ENV__API_TOKEN", "s3cret-value", func(c *Config) any { return c.MCP["x"].Env["api_token"].Reveal() }, "s3cret-value"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t)
			m.user("providers:\n  my-lab: {api_key_env: K}\n")
			m.env[c.name] = c.value
			l := m.must()
			if got := c.got(l.Config); !reflect.DeepEqual(got, c.want) {
				t.Errorf("%s=%s gives %v, want %v", c.name, c.value, got, c.want)
			}
			if len(l.Warnings) > 0 {
				t.Errorf("warns %v", l.Warnings)
			}
		})
	}
}

func TestUnknownVariableWarnsAndSetsNothing(t *testing.T) {
	m := newMachine(t)
	m.env["TROUPE_SERVER__NMAE"] = "x"
	m.env["TROUPE_LOG"] = "debug"
	m.env["TROUPE_PROVIDERS__X__FOO"] = "y"
	m.env["TROUPE_EXEC_ID"] = "exe_1" // ours, given to commands
	m.env["TROUPE_MODEL"] = ""        // empty is not set
	l := m.must()
	if len(l.Warnings) != 3 {
		t.Fatalf("warnings are %v", l.Warnings)
	}
	all := l.Warnings[0].String() + l.Warnings[1].String() + l.Warnings[2].String()
	if !strings.Contains(all, "did you mean TROUPE_SERVER__NAME?") {
		t.Errorf("no suggestion in %s", all)
	}
	if len(l.Config.Providers) != 0 {
		t.Errorf("a variable that is ignored defined %v", l.Config.Providers)
	}
}

func TestOpenAIVariablesDefineTheProvider(t *testing.T) {
	m := newMachine(t)
	m.env["OPENAI_API_KEY"] = "sk-from-environment"
	l := m.must()
	if p := l.Config.Providers["openai"]; p.BaseURL != "https://api.openai.com/v1" || p.Limits.Concurrency != 64 {
		t.Errorf("with a key the provider is %+v", p)
	}
	if key, err := l.Key(t.Context(), "openai"); err != nil || key.Reveal() != "sk-from-environment" {
		t.Errorf("the key is %v, %v", key, err)
	}
	delete(m.env, "OPENAI_API_KEY")
	m.env["OPENAI_BASE_URL"] = "http://127.0.0.1:11434/v1"
	l = m.must()
	if p := l.Config.Providers["openai"]; p.BaseURL != "http://127.0.0.1:11434/v1" {
		t.Errorf("with an address the provider is %+v", p)
	}
	if key, err := l.Key(t.Context(), "openai"); err != nil || !key.IsZero() {
		t.Errorf("an address alone needs no key: %v, %v", key, err)
	}
	if _, err := l.Config.Resolve("openai/llama3.2"); err != nil {
		t.Error(err)
	}
}

func TestKeyOfTheEnvironmentReplacesTheKeyOfAFile(t *testing.T) {
	m := newMachine(t)
	m.user("providers:\n  openai: {api_key_file: /nowhere}\n")
	m.env["OPENAI_API_KEY"] = "sk-from-environment"
	if p := m.must().Config.Providers["openai"]; p.APIKeyFile != "" || p.APIKeyEnv != "OPENAI_API_KEY" {
		t.Errorf("provider is %+v", p)
	}
	m.env["TROUPE_PROVIDERS__OPENAI__API_KEY_COMMAND"] = "pass openai"
	if p := m.must().Config.Providers["openai"]; p.APIKeyEnv != "" || p.APIKeyCommand != "pass openai" {
		t.Errorf("provider is %+v", p)
	}
}

func TestWrongFlagNamesTheFlag(t *testing.T) {
	m := newMachine(t)
	m.flags = []Flag{{Path: "server.url", Value: "nowhere", Name: "--server"}}
	if p := m.problem(); p.Origin.String() != "flag --server" || !strings.Contains(p.What, "nowhere") {
		t.Errorf("problem is %v", p)
	}
}

// TestViperAndOriginsAgree: viper says which value wins, the layers say where it came from. Over
// random layers the two must name the same one.
func TestViperAndOriginsAgree(t *testing.T) {
	root := describe()
	var paths []string
	shapes := map[string]*shape{}
	root.visit("", func(path string, s *shape) {
		if s.kind == text && s.enum == nil && s.format == "" {
			paths, shapes[path] = append(paths, path), s
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		var layers []*layer
		for source := FromSystem; source <= FromFlag; source++ {
			l := newLayer(source)
			for _, path := range rapid.SliceOfDistinct(rapid.SampledFrom(paths), func(s string) string { return s }).Draw(t, "paths") {
				l.settings[path] = &setting{path: path, shape: shapes[path], text: source.String() + rapid.StringMatching(`[a-z.:]{0,3}`).Draw(t, "value"), origin: Origin{Source: source}}
			}
			layers = append(layers, l)
		}
		_, settings, problems := merge(layers, root, "/h")
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		m := &merger{layers: layers}
		for _, s := range settings {
			if set := m.strongest(s.Path); set != nil && set.text != s.Value {
				t.Fatalf("%s is %q, but the strongest layer says %q", s.Path, s.Value, set.text)
			}
		}
	})
}
