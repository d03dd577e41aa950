// Package telemetry holds what traces, metrics and log lines are made of: every name of a span, an attribute, an event, a metric and a key
// of a log line stands in names.go. What is said of models, agents and tools has the names of OpenTelemetry's conventions for
// generative AI, which are still in motion; the rest is ours.
//
// It knows OpenTelemetry's interfaces and none of its machinery: whoever wants traces hands in a provider. No attribute holds a prompt,
// an argument, a result or a secret: what a model or a person has written is no part of a trace.
package telemetry

import "go.opentelemetry.io/otel/attribute"

// Scope is the name under which spans are made.
const Scope = "github.com/troupe-dev/troupe"

// Spans. Those of a model, an agent or a tool have its name behind the operation, as in "chat gpt-5".
const (
	SpanInput        = "troupe.input"         // an input from its arrival until it is durable
	SpanWaitQueue    = "troupe.wait.queue"    // until it is the input's turn
	SpanWaitLease    = "troupe.wait.lease"    // for the workspaces
	SpanWaitLimiter  = "troupe.wait.limiter"  // for a permit of the provider
	SpanWaitApproval = "troupe.wait.approval" // for a person
	SpanAppend       = "troupe.append"        // facts becoming durable
	SpanRun          = "troupe.run"           // of a pipeline, from its beginning to its end
)

// Operations, as gen_ai.operation.name has them; spans are named after them.
const (
	OperationTurn = "invoke_agent"
	OperationChat = "chat"
	OperationTool = "execute_tool"
)

// Attributes of the conventions.
const (
	Operation      = attribute.Key("gen_ai.operation.name")
	AgentName      = attribute.Key("gen_ai.agent.name")
	Conversation   = attribute.Key("gen_ai.conversation.id")
	Provider       = attribute.Key("gen_ai.provider.name")
	RequestModel   = attribute.Key("gen_ai.request.model")
	ResponseModel  = attribute.Key("gen_ai.response.model")
	FinishReasons  = attribute.Key("gen_ai.response.finish_reasons")
	InputTokens    = attribute.Key("gen_ai.usage.input_tokens")
	OutputTokens   = attribute.Key("gen_ai.usage.output_tokens")
	CachedTokens   = attribute.Key("gen_ai.usage.cache_read.input_tokens")
	TokenType      = attribute.Key("gen_ai.token.type")
	ToolName       = attribute.Key("gen_ai.tool.name")
	ErrorType      = attribute.Key("error.type")
	ServiceName    = attribute.Key("service.name")
	ServiceVersion = attribute.Key("service.version")
	HTTPMethod     = attribute.Key("http.request.method")
	HTTPRoute      = attribute.Key("http.route")
	HTTPStatus     = attribute.Key("http.response.status_code")
)

// Attributes of our own.
const (
	Session    = attribute.Key("troupe.session")
	Worker     = attribute.Key("troupe.worker")
	Parent     = attribute.Key("troupe.worker.parent") // of a worker that an agent delegated to
	Turn       = attribute.Key("troupe.turn")
	Step       = attribute.Key("troupe.step")    // of a turn, from 1
	Attempt    = attribute.Key("troupe.attempt") // from 1
	Attempts   = attribute.Key("troupe.model.requests")
	Purpose    = attribute.Key("troupe.model.purpose") // of a model call that is no step of a turn
	InsteadOf  = attribute.Key("troupe.model.instead_of")
	FirstToken = attribute.Key("troupe.model.first_token_seconds")
	Scripted   = attribute.Key("troupe.model.scripted")
	Cost       = attribute.Key("troupe.cost_usd")
	Exec       = attribute.Key("troupe.exec") // id of a call's execution, as troupe ls calls has it
	Effect     = attribute.Key("troupe.tool.effect")
	Workspace  = attribute.Key("troupe.workspace")
	Approval   = attribute.Key("troupe.approval")
	Decision   = attribute.Key("troupe.approval.decision")
	Outcome    = attribute.Key("troupe.outcome")
	Resumed    = attribute.Key("troupe.resumed") // true: the turn, or the run, was continued after a restart
	Records    = attribute.Key("troupe.append.records")
	Mode       = attribute.Key("troupe.input.mode")
	Origin     = attribute.Key("troupe.input.origin")
	PauseTime  = attribute.Key("troupe.retry.pause_seconds")
	Run        = attribute.Key("troupe.run") // of a pipeline
	By         = attribute.Key("troupe.by")  // what kind of cause ended a turn
)

// Events of spans.
const (
	EventRetry     = "troupe.retry"     // the same request goes out again
	EventCancelled = "troupe.cancelled" // somebody, or a limit, ends the turn
	EventDoubted   = "troupe.in_doubt"  // nobody knows whether the call happened
)

// Metrics of GET /metrics, in base units.
const (
	MetricRequests           = "troupe_http_requests_total"
	MetricRequestTime        = "troupe_http_request_duration_seconds"
	MetricRequestsOpen       = "troupe_http_requests_open"
	MetricConnectionsRefused = "troupe_connections_refused_total"
	MetricTurns              = "troupe_turns_total"
	MetricTokens             = "troupe_tokens_total"
	MetricCost               = "troupe_cost_usd_total"
	MetricBuild              = "troupe_build_info"
	MetricActors             = "troupe_actors"
	MetricRestarts           = "troupe_actor_restarts"
	MetricSpans              = "troupe_trace_spans_total"
	MetricMemory             = "troupe_memory_live_bytes"
	MetricRoom               = "troupe_sessions_limit"
)

// Metrics of the conventions, which go out over OTLP under these names; in GET /metrics they have the form of Prometheus (gen_ai_client_token_usage).
const (
	MetricTokenUsage        = "gen_ai.client.token.usage"
	MetricOperationDuration = "gen_ai.client.operation.duration"
	MetricFirstChunk        = "gen_ai.client.operation.time_to_first_chunk"
	MetricAgentDuration     = "gen_ai.invoke_agent.duration"
	MetricToolDuration      = "gen_ai.execute_tool.duration"
)

// PurposeCompaction is the Purpose of a call that summarises a history.
const PurposeCompaction = "compaction"

// LogKeys are the keys of log lines: what is not among them is none. Numbers stand under count, seq or upto, what only people read under message.
func LogKeys() []string {
	return []string{
		"err", "stack", // why, and where
		"node", "session", "worker", "conversation", "run", "turn", "call", "approval", "timer", "workspace", // who and what it is about, by id or address
		"actor", "agent", "tool", "server", "route", "frame", "stream", "key", "field", "effect", "path", "commit", "type", "code", // the same, by name
		"trace_id",                      // of the turn or request that it is about, when that is traced
		"by", "message", "line", "life", // in whose name, and more for people
		"count", "seq", "upto", "age", "held", "acknowledged", // how many, and how far
	}
}
