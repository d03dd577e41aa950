package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// window is how many turns, up to and including the named one, are measured together.
const window = 10

// Along is what one long session came to.
type Along struct {
	System  string  `json:"system"`
	Points  []Point `json:"points"`
	Sending float64 `json:"sending_ms_per_mb"` // CPU of posting bytes with net/http and nothing else
}

// Point is the cost of a turn of one session when it has that many.
type Point struct {
	Turn      int     `json:"turn"`
	CPU       float64 `json:"cpu_ms"`     // of the process, for one turn
	RequestKB float64 `json:"request_kb"` // mean of the turn's two requests
	Wall      float64 `json:"wall_ms"`    // of one turn
}

// along plays sessions one after the other and measures around each point.
func along(ctx context.Context, system string, o *Options, open Open) (*Along, error) {
	out := &Along{System: system, Points: make([]Point, len(o.At))}
	for i := range o.Repeat {
		turn, err := open(ctx, i)
		if err != nil {
			return nil, err
		}
		n := 0
		for p, at := range o.At {
			for ; n < at-window; n++ {
				if err := turn(ctx, n); err != nil {
					return nil, err
				}
			}
			seen, err := stats(ctx, o.Base)
			if err != nil {
				return nil, err
			}
			cpu, start := CPU(), time.Now()
			for ; n < at; n++ {
				if err := turn(ctx, n); err != nil {
					return nil, err
				}
			}
			used, wall := CPU()-cpu, time.Since(start)
			now, err := stats(ctx, o.Base)
			if err != nil {
				return nil, err
			}
			pt, times := &out.Points[p], float64(window*o.Repeat)
			pt.Turn = at
			pt.CPU += used * 1000 / times
			pt.Wall += wall.Seconds() * 1000 / times
			pt.RequestKB += float64(now.Bytes-seen.Bytes) / float64(now.Requests-seen.Requests) / 1024 / float64(o.Repeat)
		}
	}
	var err error
	out.Sending, err = sending(ctx, o.Base)
	return out, err
}

// sending is what the bytes of a request cost without any runtime: the yardstick of growth.
func sending(ctx context.Context, base string) (float64, error) {
	const rounds, small, large = 100, 1 << 10, 1 << 20
	c := &http.Client{Timeout: 10 * time.Second}
	defer c.CloseIdleConnections()
	cost := func(size int) (float64, error) {
		body := make([]byte, size)
		start := CPU()
		for range rounds {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/chat/completions", bytes.NewReader(body))
			if err != nil {
				return 0, err
			}
			res, err := c.Do(r)
			if err != nil {
				return 0, fmt.Errorf("post %d bytes: %w", size, err)
			}
			_, err = io.Copy(io.Discard, res.Body)
			if err := errors.Join(err, res.Body.Close()); err != nil {
				return 0, err
			}
		}
		return (CPU() - start) * 1000 / rounds, nil
	}
	few, err := cost(small)
	if err != nil {
		return 0, err
	}
	many, err := cost(large)
	return many - few, err
}

// Stats is what the model server says about itself.
type Stats struct {
	Requests int64   `json:"requests"`
	Bytes    int64   `json:"bytes"` // of their bodies
	CPU      float64 `json:"cpu_s"`
}

func stats(ctx context.Context, base string) (*Stats, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(base, "/v1")+"/stats", nil)
	if err != nil {
		return nil, err
	}
	c := &http.Client{Timeout: 10 * time.Second}
	defer c.CloseIdleConnections()
	res, err := c.Do(r)
	if err != nil {
		return nil, fmt.Errorf("ask the model server what it saw: %w", err)
	}
	defer res.Body.Close()
	s := &Stats{}
	return s, json.NewDecoder(res.Body).Decode(s)
}
