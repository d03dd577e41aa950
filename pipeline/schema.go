package pipeline

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// Schema is what an answer has to fit.
type Schema struct {
	Value    any // as written
	at       place
	resolved *jsonschema.Resolved
}

// ReadSchema reads a JSON schema. What it refers to must stand in it: nothing is fetched.
func ReadSchema(text []byte) (*Schema, error) {
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return nil, err
	}
	resolved, err := resolveSchema(v)
	if err != nil {
		return nil, err
	}
	if err := slips(v, ""); err != nil {
		return nil, err
	}
	return &Schema{Value: v, resolved: resolved}, nil
}

// resolveSchema reads a JSON schema.
func resolveSchema(v any) (*jsonschema.Resolved, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var schema jsonschema.Schema
	if err := json.Unmarshal(raw, &schema); err != nil {
		return nil, err
	}
	return schema.Resolve(nil)
}

// Fit gives the JSON of an answer, without the code fence that many models put around it, when it fits; else why is what it
// does not fit.
func (sc *Schema) Fit(answer string) (raw json.RawMessage, why string) {
	if _, why := sc.fit(answer); why != "" {
		return nil, why
	}
	return json.RawMessage(unfenced(answer)), ""
}

// fit reads an answer as JSON and holds it against the schema. why is empty when it fits.
func (sc *Schema) fit(text string) (v any, why string) {
	text = unfenced(text)
	if !json.Valid([]byte(text)) {
		return nil, "it is no JSON: " + whyNoJSON(text)
	}
	v, err := decodeJSON(text)
	if err != nil {
		return nil, err.Error()
	}
	if tooDeep(v, maxDepth) {
		return nil, fmt.Sprintf("it is nested more than %d deep", maxDepth)
	}
	if err := sc.resolved.Validate(loose(v)); err != nil {
		return nil, err.Error()
	}
	return v, ""
}

func whyNoJSON(text string) string {
	d := json.NewDecoder(strings.NewReader(text))
	var v json.RawMessage
	err := d.Decode(&v)
	switch {
	case err == nil:
		return fmt.Sprintf("something follows the value, at byte %d", d.InputOffset())
	case errors.Is(err, io.EOF):
		return "it is empty"
	}
	return err.Error()
}

// loose gives whole numbers as the validator expects them.
func loose(v any) any {
	switch v := v.(type) {
	case int:
		return float64(v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = loose(v[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k := range v {
			out[k] = loose(v[k])
		}
		return out
	}
	return v
}

// unfenced takes a code fence off, which many models put around JSON.
func unfenced(text string) string {
	text = strings.TrimSpace(text)
	rest, ok := strings.CutPrefix(text, "```")
	if !ok {
		return text
	}
	_, rest, ok = strings.Cut(rest, "\n")
	body, closed := strings.CutSuffix(strings.TrimSpace(rest), "```")
	if !ok || !closed {
		return text
	}
	return strings.TrimSpace(body)
}

// Prompt is what an agent is told of the schema of its answer, after its task.
func (sc *Schema) Prompt() string {
	return "Answer with JSON alone, without a code fence, that fits this schema:\n" + encodeJSON(sc.Value)
}

// Repair is what an agent is told whose answer does not fit.
func (sc *Schema) Repair(why string) string {
	return fmt.Sprintf("Your answer does not fit what was asked for: %s\nAnswer again with JSON alone that fits this schema:\n%s", why, encodeJSON(sc.Value))
}

// SchemaPrompt is what an agent is told of the schema of its answer; "" when there is none.
func (st *Step) SchemaPrompt() string {
	if st.Schema == nil {
		return ""
	}
	return "\n\n" + st.Schema.Prompt()
}
