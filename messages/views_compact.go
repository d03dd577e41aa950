package messages

// CompactJSON asks for a compaction.
type CompactJSON struct {
	Worker string `json:"worker,omitempty"` // empty: the session's first
	By     string `json:"by,omitempty"`
}

// SaveJSON asks for what was kept back to be written.
type SaveJSON struct {
	Worker string `json:"worker,omitempty"` // empty: the session's first
}

// CompactedJSON is what a compaction came to.
type CompactedJSON struct {
	Worker       string `json:"worker"`
	Compacted    bool   `json:"compacted"`        // false: nothing was done, for the reason
	UptoSeq      uint64 `json:"upto_seq"`         // records of the worker up to here are no longer sent
	TokensBefore int64  `json:"tokens_before"`    // of the history, as estimated
	TokensAfter  int64  `json:"tokens_after"`     //
	Fallback     bool   `json:"fallback"`         // turns were dropped without a summary
	Reason       string `json:"reason,omitempty"` // of the fallback, or why nothing was done
}

// JSON is the outcome in its wire form.
func (x *Compacted) JSON() CompactedJSON {
	return CompactedJSON{
		Worker: x.GetWorkerId(), Compacted: x.GetUptoSeq() > 0, UptoSeq: x.GetUptoSeq(), TokensBefore: x.GetTokensBefore(),
		TokensAfter: x.GetTokensAfter(), Fallback: x.GetFallback(), Reason: x.GetReason(),
	}
}

// Proto is the way back.
func (j CompactedJSON) Proto() *Compacted {
	return &Compacted{
		WorkerId: j.Worker, UptoSeq: j.UptoSeq, TokensBefore: j.TokensBefore, TokensAfter: j.TokensAfter, Fallback: j.Fallback, Reason: j.Reason,
	}
}
