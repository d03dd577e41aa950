package actors

import (
	"fmt"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/troupe-dev/troupe/messages"
)

// reconfigure changes what later generations use.
func (w *Worker) reconfigure(c actor.Context, m *messages.ConfigureWorker) {
	if m.GetAgent() != "" {
		if _, ok := w.svc.agent(m.GetAgent()); !ok {
			c.Respond(messages.Fail(messages.CodeAgent, fmt.Sprintf("agent %q is not configured", m.GetAgent()), "see `agents:` in the configuration"))
			return
		}
	}
	if m.GetModel() != "" {
		if _, err := w.svc.Models.Resolve(m.GetModel()); err != nil {
			c.Respond(messages.Fail(messages.CodeModel, err.Error(), ""))
			return
		}
	}
	if mcp := m.GetMcp(); mcp != "" && mcp != "on" && mcp != "off" {
		c.Respond(messages.Fail(messages.CodeBadRequest, fmt.Sprintf("mcp: %q is neither on nor off", mcp), ""))
		return
	}
	asker := c.Sender()
	w.append(c, asker, func(c actor.Context) {
		w.system, w.tools = "", nil
		c.Send(asker, w.view())
	}, &messages.ConfigChanged{Agent: m.GetAgent(), Model: m.GetModel(), Tools: m.GetTools(), Mcp: m.GetMcp(), System: w.svc.Redact.String(m.GetSystem())})
}
