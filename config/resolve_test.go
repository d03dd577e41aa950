package config

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

func TestModelIsFoundByAliasOrProviderAndName(t *testing.T) {
	m := newMachine(t)
	m.user(`
model: small
providers:
  openai: {base_url: "http://h/v1", api: responses}
  router: {base_url: "http://r/v1"}
models:
  small: {provider: openai, name: gpt-4.1-mini, price: {input: 0.4}, context: 1000}
  lost: {provider: gone, name: x}
`)
	c := m.must().Config
	for name, want := range map[string]string{
		"": "openai/gpt-4.1-mini", "small": "openai/gpt-4.1-mini", "openai/gpt-4.1-mini": "openai/gpt-4.1-mini",
		"router/meta/llama-3:8b": "router/meta/llama-3:8b", "scripted/tour": "scripted/tour", "replay//tmp/f.yaml": "replay//tmp/f.yaml",
	} {
		got, err := c.Resolve(name)
		if err != nil || got.String() != want {
			t.Errorf("%q gives %v, %v; want %s", name, got, err, want)
		}
		if strings.HasSuffix(want, "mini") && (got.Price.Input != 400_000 || got.Context != 1000 || got.Service.API != "responses") {
			t.Errorf("%q has price, context and API %+v", name, got)
		}
		if got.Offline() != (strings.HasPrefix(want, "scripted") || strings.HasPrefix(want, "replay")) {
			t.Errorf("%q: offline is %v", name, got.Offline())
		}
	}
	for name, want := range map[string]string{
		"smal": `did you mean "small"?`, "opnai/gpt-5": `did you mean "openai/gpt-5"?`, "gpt-4.1-mini": `did you mean "openai/gpt-4.1-mini"?`,
		"lost": `no provider is called "gone"`, "x/": "neither an alias", "/x": "neither an alias",
	} {
		_, err := c.Resolve(name)
		var unknown *UnknownModelError
		if !errors.As(err, &unknown) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q gives %v, want %s", name, err, want)
		}
	}
	if _, err := new(Config).Resolve(""); !errors.Is(err, ErrNoModel) {
		t.Errorf("no model gives %v", err)
	}
	if _, err := new(Config).Resolve("openai/x"); err == nil || !strings.Contains(err.Error(), "OPENAI_API_KEY") {
		t.Errorf("openai without key or address gives %v", err)
	}
}

func TestCheckFindsContradictions(t *testing.T) {
	for file, want := range map[string]string{
		"model: nobody/x\n":                                          "no provider is called",
		"models: {a: {provider: x}}\n":                               "models.a needs provider and name",
		"providers: {x: {api_key_env: K}}\n":                         "providers.x has no base_url",
		"agents: {a: {mcp: [fils]}}\nmcp: {files: {command: [x]}}\n": `no MCP server is called "fils"`,
		"agents: {a: {model: zzz}}\n":                                "agents.a.model",
		"mcp: {x: {disabled: true}}\n":                               "neither command nor url",
		"workspaces: {w: {trust: full}}\n":                           "workspaces.w has no uri",
		"server: {tokens: {t: {scopes: [read]}}}\n":                  "has no source",
		"server: {tls: {cert: /c}}\n":                                "both cert and key",
		"data: {store: postgres}\n":                                  "data.dsn_env",
		"cluster: {enabled: true}\n":                                 "cluster.etcd",
		"sandbox: {exec: container}\n":                               "sandbox.image",

		"providers: {x: {base_url: \"http://h/v1\"}}\nmodels: {a: {provider: x, name: m, fallback: a}}\n":   "models.a.fallback is the model itself",
		"providers: {x: {base_url: \"http://h/v1\"}}\nmodels: {a: {provider: x, name: m, fallback: x/m}}\n": "models.a.fallback is the model itself",
	} {
		m := newMachine(t)
		m.user(file)
		ps := m.must().Check()
		if len(ps) != 1 || !strings.Contains(ps[0].What, want) {
			t.Errorf("%q gives %v, want %q", file, ps, want)
		}
	}
	if ps := newMachine(t).must().Check(); ps != nil {
		t.Errorf("an empty machine has the problems %v", ps)
	}
}

func TestShownConfigurationCanBeLoadedAgain(t *testing.T) {
	m := newMachine(t)
	m.user(usersFile + "models: {gpt-4.1: {provider: lab, name: x, price: {input: 0.000001}}}\nlease: {hold: 90s}\n")
	first := m.must()
	out, err := yaml.Marshal(first.Tree())
	if err != nil {
		t.Fatal(err)
	}
	m.user(string(out))
	second := m.must()
	again, err := yaml.Marshal(second.Tree())
	if err != nil || string(again) != string(out) {
		t.Errorf("shown\n%s\nand after loading that\n%s (%v)", out, again, err)
	}
	if second.Config.Models["gpt-4.1"].Price.Input != 1 || second.Config.Lease.Hold != 90*time.Second {
		t.Errorf("values were lost: %+v", second.Config)
	}
}

func TestStarterSetsNothingAndUncommentedIsValid(t *testing.T) {
	m := newMachine(t)
	m.user(Starter())
	for _, s := range m.must().Settings() {
		if s.Origin.Source != FromDefault {
			t.Errorf("the starter sets %s", s.Path)
		}
	}
	// Sentences begin with "# ", settings with "#" and their indentation.
	m.user(regexp.MustCompile(`(?m)^#(  |[a-z])`).ReplaceAllString(Starter(), "$1"))
	l := m.must()
	if c := l.Config; c.Model == "" || c.Agents["reviewer"].Model != "small" || len(c.Approvals.Rules) != 2 {
		t.Errorf("uncommented the starter gives %+v", c)
	}
	if ps := l.Check(); ps != nil {
		t.Errorf("uncommented the starter has %v", ps)
	}
	if ps := l.NotYet(); len(ps) > 0 {
		t.Errorf("uncommented the starter asks for what is not there: %v", ps)
	}
}

func TestWhatHasNoEffectYetIsRefusedWhereItStands(t *testing.T) {
	m := newMachine(t)
	m.user("lease:\n  ttl: 2m\n  grace: 60s\ndata: {store: postgres}\nagents: {a: {limits: {steps: 3, depth: 2}}}\n")
	l := m.must()
	text := l.NotYet().Error()
	for _, want := range []string{"lease.ttl: 2m is", "data.store: postgres is", "agents.a.limits.depth: 2 is", "config.yaml:2:"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if n := len(l.NotYet()); n != 3 {
		t.Errorf("%d problems:\n%s", n, text)
	}
	m.user("workspaces: {src: {uri: 'local:/src', trust: full, read_only: true, image: debian}}\napprovals: {rules: [{tool: exec, action: allow, scope: agent}]}\n")
	text = m.must().NotYet().Error()
	for _, want := range []string{
		"workspaces.src.trust: full is not taken here", "troupe trust DIR", "workspaces.src.read_only: true is not taken here", "tools: [read_file",
		"workspaces.src.image: debian is not taken here", "sandbox.image", "scope: agent is not taken here", "agents.NAME.policy.rules",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	m.user("data: {store: badger, persist: message}\nlease: {ttl: 30s}\nlimits: {depth: 1}\n")
	if p := m.must().NotYet(); len(p) > 0 {
		t.Errorf("defaults are refused: %v", p)
	}
}

func TestStarterNeverOverwrites(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a/b/config.yaml")
	if err := WriteStarter(name); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte("model: a/b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := WriteStarter(name); !errors.Is(err, fs.ErrExist) {
		t.Errorf("the second time gives %v", err)
	}
	if got, _ := os.ReadFile(name); string(got) != "model: a/b\n" {
		t.Errorf("the file holds %q", got)
	}
}

func TestSchemaDescribesEverySetting(t *testing.T) {
	raw, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	for _, d := range Reference() {
		at := doc
		for part := range strings.SplitSeq(strings.ReplaceAll(d.Path, "[]", ".[]"), ".") {
			switch part {
			case "NAME":
				at, _ = at["additionalProperties"].(map[string]any)
			case "[]":
				at, _ = at["items"].(map[string]any)
			default:
				props, _ := at["properties"].(map[string]any)
				at, _ = props[part].(map[string]any)
			}
		}
		if at["description"] != d.Doc {
			t.Errorf("%s is described as %v", d.Path, at["description"])
		}
	}
}

func TestFoldersFollowXDGAndNeedNothing(t *testing.T) {
	f := Dirs(Env{"HOME": "/h", "XDG_DATA_HOME": "/d", "XDG_CACHE_HOME": "relative", "XDG_RUNTIME_DIR": "/run/user/1"})
	want := Folders{Home: "/h", Config: "/h/.config/troupe", Data: "/d/troupe", State: "/h/.local/state/troupe", Cache: "/h/.cache/troupe", Runtime: "/run/user/1/troupe"}
	if f != want {
		t.Errorf("folders are %+v, want %+v", f, want)
	}
	for _, env := range []Env{nil, {"HOME": ""}, {"HOME": "relative"}} {
		if f := Dirs(env); !filepath.IsAbs(f.Data) || !filepath.IsAbs(f.Runtime) {
			t.Errorf("with %v the folders are %+v", env, f)
		}
	}
}

func TestValuesReadWhatTheyWrite(t *testing.T) {
	for in, want := range map[string]Size{"0": 0, "1500": 1500, "1KB": 1000, "64MiB": 64 << 20, "2 gib": 2 << 30, "7b": 7} {
		got, err := ParseSize(in)
		if err != nil || got != want {
			t.Errorf("size %q is %d, %v", in, got, err)
		}
		if back, err := ParseSize(got.String()); err != nil || back != got {
			t.Errorf("size %d is written %q and read %d", got, got.String(), back)
		}
	}
	for in, want := range map[string]USD{"0": 0, "1": 1_000_000, "$1.5": 1_500_000, "0.000001": 1, "12.34": 12_340_000} {
		got, err := ParseUSD(in)
		if err != nil || got != want {
			t.Errorf("amount %q is %d, %v", in, got, err)
		}
		if back, err := ParseUSD(got.String()); err != nil || back != got {
			t.Errorf("amount %d is written %q and read %d", got, got.String(), back)
		}
	}
	for in, want := range map[string]time.Duration{"0": 0, "60s": time.Minute, "2d": 48 * time.Hour, "1h30m": 90 * time.Minute} {
		got, err := ParseDuration(in)
		if err != nil || got != want {
			t.Errorf("duration %q is %v, %v", in, got, err)
		}
		if back, err := ParseDuration(durationText(got)); err != nil || back != got {
			t.Errorf("duration %v is written %q and read %v", got, durationText(got), back)
		}
	}
	for _, in := range []string{"", "9223372036854775807KiB", "-1", "1.5MiB", "MiB", "1e3"} {
		if got, err := ParseSize(in); err == nil {
			t.Errorf("size %q is read as %d", in, got)
		}
	}
	for _, in := range []string{"", "1.", ".5", "-1", "1e3", "1.0000001", "99999999999999999"} {
		if got, err := ParseUSD(in); err == nil {
			t.Errorf("amount %q is read as %d", in, got)
		}
	}
}
