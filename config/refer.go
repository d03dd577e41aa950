package config

import (
	"fmt"
	"maps"
	"slices"
)

// Check reports what contradicts itself across settings: a model whose provider is nowhere
// defined, an agent that names an MCP server that does not exist. Load does not, because a
// command that needs no model should not fail for the want of one.
func (l *Loaded) Check() Problems {
	c := &checker{l: l}
	c.models()
	c.agents()
	c.others()
	return c.problems
}

type checker struct {
	l        *Loaded
	problems Problems
}

func (c *checker) add(path, what, fix string) {
	s := c.l.setting(path)
	c.problems = append(c.problems, &Problem{What: what, Path: path, Origin: s.Origin, Excerpt: s.excerpt, Fix: fix})
}

func (c *checker) model(path, name string) {
	if name == "" {
		return
	}
	if _, err := c.l.Config.Resolve(name); err != nil {
		c.add(path, path+": "+err.Error(), "write PROVIDER/NAME with a provider of providers, or an alias of models")
	}
}

func (c *checker) models() {
	cfg := c.l.Config
	c.model("model", cfg.Model)
	for _, alias := range slices.Sorted(maps.Keys(cfg.Models)) {
		a, at := cfg.Models[alias], child("models", alias)
		if a.Provider == "" || a.Name == "" {
			c.add(child(at, "provider"), at+" needs provider and name", "")
			continue
		}
		c.model(child(at, "provider"), a.Provider+"/"+a.Name)
		c.model(child(at, "fallback"), a.Fallback)
		if other, err := cfg.Resolve(a.Fallback); a.Fallback != "" && err == nil && other.Provider == a.Provider && other.Name == a.Name {
			c.add(child(at, "fallback"), child(at, "fallback")+" is the model itself, which cannot stand in for itself", "name another model, or leave fallback out")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Providers)) {
		if p := cfg.Providers[name]; p.BaseURL == "" {
			c.add(child(child("providers", name), "base_url"), child("providers", name)+" has no base_url", "write the address of its API, for example http://127.0.0.1:11434/v1")
		}
	}
}

func (c *checker) agents() {
	cfg := c.l.Config
	servers := slices.Sorted(maps.Keys(cfg.MCP))
	for _, name := range slices.Sorted(maps.Keys(cfg.Agents)) {
		a, at := cfg.Agents[name], child("agents", name)
		c.model(child(at, "model"), a.Model)
		for _, other := range a.Handoff {
			if _, ok := cfg.Agents[other]; !ok && other != "default" {
				c.add(child(at, "handoff"), fmt.Sprintf("%s: no agent is called %q", at, other), didYouMean(other, slices.Sorted(maps.Keys(cfg.Agents))))
			}
		}
		for _, other := range a.Fallback {
			c.model(child(at, "fallback"), other)
		}
		for _, s := range a.MCP {
			if !slices.Contains(servers, s) {
				c.add(child(at, "mcp"), fmt.Sprintf("%s: no MCP server is called %q", at, s), didYouMean(s, servers))
			}
		}
	}
	for _, name := range servers {
		if s := cfg.MCP[name]; len(s.Command) == 0 && s.URL == "" {
			at := child("mcp", name)
			c.add(child(at, "command"), at+" has neither command nor url", "set one of them")
		}
	}
}

func (c *checker) others() {
	cfg := c.l.Config
	for _, name := range slices.Sorted(maps.Keys(cfg.Workspaces)) {
		if at := child("workspaces", name); cfg.Workspaces[name].URI == "" {
			c.add(child(at, "uri"), at+" has no uri", "write its address, for example local:/srv/code")
		} else if cfg.Workspaces[name].Mode == "container" && cfg.Sandbox.Image == "" {
			c.add(child(at, "mode"), at+".mode is container and sandbox.image is not set", "name an image that holds the project's tools")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Server.Tokens)) {
		if t, at := cfg.Server.Tokens[name], child("server.tokens", name); t.Env == "" && t.File == "" {
			c.add(child(at, "token_env"), at+" has no source", "set token_env or token_file")
		}
	}
	c.pair("server.tls", cfg.Server.TLS)
	c.pair("cluster.tls", cfg.Cluster.TLS)
	if cfg.Data.Store == "postgres" && cfg.Data.DSNEnv == "" {
		c.add("data.store", "data.store is postgres and data.dsn_env is not set", "name the variable that holds the connection string")
	}
	if cfg.Cluster.Enabled && (len(cfg.Cluster.Etcd) == 0 || cfg.Cluster.TLS.CA == "") {
		c.add("cluster.enabled", "a cluster needs cluster.etcd and cluster.tls with cert, key and ca", "troupe cluster certs makes certificates")
	}
	if cfg.Sandbox.Exec == "container" && cfg.Sandbox.Image == "" {
		c.add("sandbox.exec", "sandbox.exec is container and sandbox.image is not set", "name an image that holds the project's tools")
	}
}

// pair reports a certificate without a key, or the other way round.
func (c *checker) pair(path string, t TLS) {
	if (t.Cert == "") != (t.Key == "") {
		c.add(child(path, "cert"), path+" needs both cert and key, or none", "")
	}
}
