package load

import (
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Mark is where a process stands.
type Mark struct {
	CPU        float64 `json:"cpu_s"`
	ResidentKB float64 `json:"resident_kb"` // after what is free was given back
	LiveKB     float64 `json:"live_kb"`     // heap and stacks after a collection
	Goroutines int     `json:"goroutines"`
}

// Here is the mark of this process. It costs a collection.
func Here() Mark {
	m := Mark{CPU: CPU()}
	debug.FreeOSMemory()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	m.ResidentKB, m.LiveKB, m.Goroutines = memory("VmRSS"), live(&mem), runtime.NumGoroutine()
	return m
}

// Stamped asks the model server for an answer whose first text says when it was written.
const Stamped = "STAMP"

// StampMark stands where that moment belongs, in nanoseconds since 1970: 19 digits, between two @.
const StampMark = "0000000000000000000"

// Since is how long ago, in microseconds, a stamped text was written; false where none is.
func Since(text string) (us float64, ok bool) {
	now := time.Now().UnixNano()
	_, rest, found := strings.Cut(text, "@")
	digits, _, ends := strings.Cut(rest, "@")
	n, err := strconv.ParseInt(digits, 10, 64)
	if !found || !ends || err != nil {
		return 0, false
	}
	return float64(now-n) / 1000, true
}

// Quantiles are those of what took how long.
type Quantiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// QuantilesOf sorts what it is given.
func QuantilesOf(v []float64) Quantiles {
	if len(v) == 0 {
		return Quantiles{}
	}
	slices.Sort(v)
	return Quantiles{P50: v[len(v)/2], P99: v[len(v)*99/100]}
}
