package actors

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/tools"
)

//go:embed handoff.md
var handoffDoc string

// HandoffName is what models call the tool.
const HandoffName = "handoff"

// Handoff is the tool by which an agent gives its conversation to another one that its profile names (ADR 73). The call itself only
// checks; what it does is the Worker's HandedOver, which is written with its result.
type Handoff struct {
	spec *tools.Spec
	to   map[string][]string // by agent
}

// NewHandoff makes the tool for the agents that there are.
func NewHandoff(agents []Agent) *Handoff {
	h := &Handoff{to: make(map[string][]string)}
	for _, a := range agents {
		h.to[cmp.Or(a.Name, DefaultAgent)] = a.Handoff
	}
	h.spec = &tools.Spec{
		Name: HandoffName, Description: handoffDoc, Effect: messages.Effect_PURE, NoWorkspace: true, NoTemp: true,
		Schema: handoffSchema(nil),
	}
	return h
}

// handoffSchema names who may be handed over to; nil: it does not say.
func handoffSchema(to []string) json.RawMessage {
	agent := map[string]any{"type": "string", "maxLength": 64, "description": "The agent that goes on."}
	if len(to) > 0 {
		agent["enum"] = to
	}
	b, _ := json.Marshal(map[string]any{ // of strings and maps: cannot fail
		"type": "object", "additionalProperties": false, "required": []string{"agent"},
		"properties": map[string]any{
			"agent":   agent,
			"message": map[string]any{"type": "string", "maxLength": 4096, "description": "What it should know besides what stands in the conversation."},
		},
	})
	return b
}

type handoffArgs struct {
	Agent   string `json:"agent"`
	Message string `json:"message"`
}

// Spec implements tools.Tool.
func (h *Handoff) Spec() *tools.Spec { return h.spec }

// Run implements tools.Tool: it says whether the agent of the call may hand over to the one that it names.
func (h *Handoff) Run(tc *tools.Context, args json.RawMessage) (*tools.Result, error) {
	var a handoffArgs
	if err := tools.Decode(h.spec, args, &a); err != nil {
		return nil, err
	}
	from := cmp.Or(tc.Agent, DefaultAgent)
	to := h.to[from]
	switch _, known := h.to[a.Agent]; {
	case len(to) == 0:
		return nil, tools.Errorf(tools.CodePermissionDenied, "Access denied: agent %s may not hand its conversation over (agents.%s.handoff names nobody)", from, from)
	case !slices.Contains(to, a.Agent):
		return nil, tools.Errorf(tools.CodePermissionDenied, "Access denied: agent %s may hand over to %s, and not to %q", from, strings.Join(to, ", "), a.Agent)
	case !known:
		return nil, tools.Errorf(tools.CodeInvalidArguments, "agent %q is not configured", a.Agent)
	}
	text := fmt.Sprintf("The conversation is handed over: from here on you are agent %s. What stands above was answered by agent %s.", a.Agent, from)
	if a.Message != "" {
		text += " Its word to you: " + a.Message
	}
	return &tools.Result{Content: text}, nil
}

// withTargets offers the tool to one agent: with the names of those that it may hand over to, and what they are for.
func (s *Services) withTargets(a Agent, defs []model.ToolDef) []model.ToolDef {
	at := slices.IndexFunc(defs, func(d model.ToolDef) bool { return d.Name == HandoffName })
	if at < 0 {
		return defs
	}
	names := make([]string, len(defs))
	for i, d := range defs {
		names[i] = d.Name
	}
	key := "to " + strings.Join(a.Handoff, " ") + "\n" + strings.Join(names, " ")
	if known, ok := s.offers.Load(key); ok {
		return known.([]model.ToolDef) //nolint:forcetypeassert // only offers are stored
	}
	own := slices.Clone(defs)
	var who strings.Builder
	for _, name := range a.Handoff {
		who.WriteString("\n- " + name)
		if what := s.Agents[name].Description; what != "" {
			who.WriteString(": " + what)
		}
	}
	own[at].Description += "\nThe agents:" + who.String()
	own[at].Schema = handoffSchema(a.Handoff)
	kept, _ := s.offers.LoadOrStore(key, own)
	return kept.([]model.ToolDef) //nolint:forcetypeassert // only offers are stored
}
