package bench

import (
	"context"
	"errors"
	"path/filepath"
	"time"
)

// Flatness is what turns of one conversation cost as it grows.
type Flatness struct {
	Points []Point `json:"points"`
}

// Point is one turn, as the mean of those around it.
type Point struct {
	Turn  int     `json:"turn"`
	CPUMs float64 `json:"cpu_ms"` // of this process; 0 where the system does not say
	Ms    float64 `json:"ms"`     // that it took
}

// window is how many turns, up to and including the named one, are measured together.
const window = 10

// points are the turns that are looked at in a conversation of n: 10, 100, 1,000 and so on, and the last.
func points(n int) (at []int) {
	for p := window; p < n; p *= 10 {
		at = append(at, p)
	}
	return append(at, max(n, window))
}

// flatness plays one long conversation, after a short one that pays for a cold process.
func (b *run) flatness(ctx context.Context) (out *Flatness, err error) {
	h, err := open(ctx, b.base, filepath.Join(b.Dir, "flatness"), 0)
	if err != nil {
		return nil, err
	}
	ctx, end := h.watched(ctx)
	defer func() { err = errors.Join(end(err), h.close(ctx)) }()
	if _, err := h.along(ctx, -1, []int{5 * window}, b.Count); err != nil {
		return nil, err
	}
	pts, err := h.along(ctx, 0, points(b.Long), b.Count)
	return &Flatness{pts}, err
}

// along plays a conversation and measures around some of its turns.
func (h *house) along(ctx context.Context, i int, at []int, count func(int)) ([]Point, error) {
	s, err := h.session(ctx, i)
	if err != nil {
		return nil, err
	}
	var out []Point
	n := 0
	for _, p := range at {
		first := max(n, p-window)
		var cpu time.Duration
		var began time.Time
		for ; n < p; n++ {
			if n == first {
				cpu, began = processorTime(), time.Now()
			}
			if err := turn(ctx, s, n); err != nil {
				return nil, err
			}
			count(1)
		}
		turns := float64(p - first)
		out = append(out, Point{Turn: p, CPUMs: (processorTime() - cpu).Seconds() * 1000 / turns, Ms: ms(began) / turns})
	}
	return out, nil
}
