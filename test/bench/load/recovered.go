package load

// Recovered is what it took to have the sessions of a store back.
type Recovered struct {
	Sessions int     `json:"sessions"`
	OpenMs   float64 `json:"open_ms"`  // the store
	StartMs  float64 `json:"start_ms"` // the runtime on it
	ReadMs   float64 `json:"read_ms"`  // every record, and nothing done with it
	Read     int64   `json:"read"`     // records
	OneMs    float64 `json:"one_ms"`   // the first session, with its history
	AllMs    float64 `json:"all_ms"`   // all of them, with theirs
	AllCPU   float64 `json:"all_cpu_ms"`
	Records  int64   `json:"records"` // that were read and folded for it
}

// Snapshots is what the snapshots of one long session cost and save.
type Snapshots struct {
	Turns        int     `json:"turns"`
	PlayMs       float64 `json:"play_ms"` // all turns
	PlayCPU      float64 `json:"play_cpu_ms"`
	Written      int64   `json:"written"` // snapshots
	WrittenKB    float64 `json:"written_kb"`
	WriteMs      float64 `json:"write_ms"` // until all were durable, off the mailbox
	SnapMs       float64 `json:"snap_ms"`  // to resume the session with the newest
	SnapRecords  int64   `json:"snap_records"`
	WholeMs      float64 `json:"whole_ms"` // to resume it from its first record
	WholeRecords int64   `json:"whole_records"`
}
