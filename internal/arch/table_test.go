package arch

// place is one row of the plan: where a package stands and what it may know of ours.
type place struct {
	path  string   // below the module's root; "." is the root package, a last "*" stands for one more segment
	floor int      // imports go to lower floors, or to the package's own parent folder
	may   []string // places that it may import
	tests []string // places that its tests may import besides
}

// plan is the table of floors. Packages that do not exist yet have their place already.
func plan() []place {
	kernel := []string{"messages", "conversation", "workspace", "model", "policy", "tools", "pipeline", "persistence"}
	return []place{
		// Floor 0: words, settings, built files. They know nothing of ours.
		{path: "messages", floor: 0},
		{path: "web", floor: 0},
		{path: "internal/arch", floor: 0},
		{path: "internal/attacks", floor: 0},
		{path: "internal/peer", floor: 0},
		{path: "internal/plainhttp", floor: 0},
		{path: "internal/yamldoc", floor: 0},
		{path: "internal/linediff", floor: 0},
		{path: "internal/telemetry", floor: 0},

		// Floor 1: pure code and contracts.
		{path: "internal/telemetry/export", floor: 1, may: []string{"internal/telemetry"}},
		{path: "config", floor: 1, may: []string{"internal/yamldoc"}},
		{path: "conversation", floor: 1, may: []string{"messages"}},
		{path: "workspace", floor: 1, may: []string{"messages"}},
		{path: "model", floor: 1, may: []string{"messages"}},
		{path: "model/xmltools", floor: 1, may: []string{"messages", "model"}},
		{path: "model/canned", floor: 1, may: []string{"messages", "model"}},
		{path: "policy", floor: 1, may: []string{"messages"}},
		{path: "pipeline", floor: 1, may: []string{"messages", "internal/yamldoc"}},
		{path: "persistence", floor: 1, may: []string{"messages"}},
		{path: "client", floor: 1, may: []string{"messages", "internal/peer", "internal/telemetry"}},

		// Floor 2: adapters, siblings that do not know each other.
		{path: "model/openai", floor: 2, may: []string{"messages", "model", "model/xmltools", "internal/plainhttp", "internal/telemetry"}},
		{path: "model/script", floor: 2, may: []string{"messages", "model", "model/canned"}},
		{path: "model/replay", floor: 2, may: []string{"messages", "model", "model/canned", "internal/linediff", "internal/yamldoc"}},
		{path: "tools", floor: 2, may: []string{"messages", "workspace"}, tests: []string{"tools/*"}},
		{path: "tools/toolstest", floor: 2, may: []string{"messages", "model", "model/xmltools", "tools"}},
		{path: "tools/*", floor: 2, may: []string{"messages", "workspace", "tools"}, tests: []string{"tools/*"}},
		{path: "pipeline/build", floor: 2, may: []string{"pipeline"}},
		{path: "persistence/*", floor: 2, may: []string{"messages", "persistence"}, tests: []string{"persistence/*"}},
		{path: "cluster", floor: 2, may: []string{"messages"}},
		{path: "gateway", floor: 2, may: []string{"messages", "web", "internal/peer", "internal/telemetry"}},
		{path: "gateway/*", floor: 2, may: []string{"messages", "gateway"}},
		{path: "actors/act", floor: 2, may: []string{"messages"}},

		// Floor 3: the actors, which know contracts and no adapter.
		{path: "actors", floor: 3, may: append(kernel, "actors/act", "internal/telemetry"), tests: []string{"actors/actortest"}},
		{path: "actors/actortest", floor: 3, may: append(kernel, "actors", "actors/act", "model/script", "persistence/*")},
		{path: "model/modeltest", floor: 3, may: []string{"messages", "model", "model/script"}, tests: []string{"model/replay"}},

		// Floor 4: the composition root and public Go API. Neither cluster nor
		// persistence/postgres: who embeds troupe hands them in and pays for them only then.
		{path: ".", floor: 4, may: append(
			kernel, "config", "web", "actors", "actors/act", "internal/telemetry", "gateway", "gateway/*",
			"persistence/badger", "persistence/memory", "persistence/protoactor",
			"model/openai", "model/script", "tools/*",
		), tests: []string{"troupetest"}},

		// Floor 5 and above: those who use it.
		{path: "troupetest", floor: 5, may: append(kernel, ".", "actors/actortest", "internal/yamldoc", "internal/linediff", "model/script", "model/replay", "persistence/memory")},
		{path: "internal/chaos", floor: 5, may: append(
			kernel, ".", "client", "gateway", "model/openai", "model/script", "persistence/badger", "persistence/memory",
		)},
		{path: "internal/bench", floor: 5, may: []string{"messages", ".", "model/openai"}},
		{path: "cmd/troupe", floor: 6, may: []string{"*"}},
		{path: "examples/*", floor: 6, may: append(
			kernel, ".", "client", "troupetest", "model/openai", "model/script", "persistence/*", "cluster",
		)},
		{path: "test/*", floor: 6, may: []string{"*"}},
		{path: "test/bench/*", floor: 6, may: []string{"*"}},
	}
}

// doubles are what any test may use: real parts that need no network and no disk, and the suites.
func doubles() []string {
	return []string{
		"model/script", "model/modeltest", "persistence/memory", "persistence/persistencetest", "tools/toolstest", "internal/attacks",
	}
}

// boundary keeps something in its place.
type boundary struct {
	what    string   // a module or package path; everything below it is meant too
	exact   bool     // only what itself, nothing below it
	only    []string // places that may import it; nil: none of those in inside
	inside  []string // places that the rule is about; nil: all
	tests   bool     // the rule holds for tests too
	because string
}

// boundaries are the rules about libraries and about purity.
func boundaries() []boundary {
	pure := []string{"conversation", "policy", "pipeline"}
	plain := []string{
		"messages", "config", "web", "conversation", "workspace", "model", "model/*",
		"policy", "pipeline", "persistence", "client", "tools", "tools/*",
	}
	return []boundary{
		{
			what: "github.com/dgraph-io/badger", only: []string{"persistence/badger", "test/*", "test/bench/*"}, tests: true,
			because: "only persistence/badger knows Badger",
		},
		{
			what: "github.com/sashabaranov/go-openai", only: []string{"model/openai", "test/*", "test/bench/*"},
			because: "only model/openai knows go-openai",
		},
		{
			what: "github.com/modelcontextprotocol/go-sdk", only: []string{"tools/mcp", "gateway/mcp"},
			because: "only the adapters of MCP know its SDK",
		},
		{what: "github.com/spf13/viper", only: []string{"config"}, tests: true, because: "only config knows viper"},
		{
			what: "github.com/spf13/cobra", only: []string{"cmd/troupe"}, tests: true,
			because: "only the command line knows cobra",
		},
		{
			what: "github.com/asynkron/protoactor-go", inside: plain, tests: true,
			because: "below the actors nothing knows that there are actors",
		},
		{
			what: "go.opentelemetry.io/otel/sdk", only: []string{"internal/telemetry/export"},
			because: "whoever wants traces hands in a provider: only internal/telemetry/export makes one",
		},
		{what: "os", inside: pure, because: "pure code touches no machine"},
		{what: "net", inside: pure, because: "pure code talks to nobody"},
		{what: "syscall", inside: pure, because: "pure code touches no machine"},
		{what: "math/rand", inside: pure, because: "pure code gives the same answer each time"},
		{what: "time", inside: []string{"conversation"}, because: "a conversation reads no clock; times come with the facts"},
		{what: "log", exact: true, inside: plain, because: "log lines go through log/slog, handed in"},
	}
}
