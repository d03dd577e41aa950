package openai

import (
	"encoding/json"
	"math"
	"strconv"
)

// rawUsage holds the names under which providers count tokens.
type rawUsage struct {
	Prompt     float64 `json:"prompt_tokens"`
	Completion float64 `json:"completion_tokens"`
	Input      float64 `json:"input_tokens"`
	Output     float64 `json:"output_tokens"`
	CacheHit   float64 `json:"prompt_cache_hit_tokens"`
	CacheRead  float64 `json:"cache_read_input_tokens"`
	PromptBy   struct {
		Cached float64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionBy struct {
		Reasoning float64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// appendUsage writes the usage of an event, if it has any that can be read. A usage that
// cannot is dropped: no answer is lost over its bill.
func appendUsage(out []byte, raw json.RawMessage) []byte {
	var u rawUsage
	if void(raw) || raw[0] != '{' {
		return out
	}
	if err := json.Unmarshal(raw, &u); err != nil {
		return out
	}
	in, got := max(u.Prompt, u.Input), max(u.Completion, u.Output)
	cached := max(u.PromptBy.Cached, u.CacheHit, u.CacheRead)
	out = appendCount(append(out, `,"usage":{"prompt_tokens":`...), in)
	out = appendCount(append(out, `,"completion_tokens":`...), got)
	out = appendCount(append(out, `,"prompt_tokens_details":{"cached_tokens":`...), cached)
	out = appendCount(append(out, `},"completion_tokens_details":{"reasoning_tokens":`...), u.CompletionBy.Reasoning)
	return append(out, "}}"...)
}

// appendCount writes a count of tokens, kept within what a bill can mean.
func appendCount(out []byte, n float64) []byte {
	return strconv.AppendInt(out, int64(math.Min(math.Max(n, 0), 1e12)), 10)
}
