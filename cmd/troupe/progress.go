package main

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/troupe-dev/troupe/config"
)

// progressAfter is how long work goes on without a word about it, and progressEvery how often there
// is one then.
const (
	progressAfter = 2 * time.Second
	progressEvery = 2 * time.Second
)

// meter tells on stderr how long work is getting on. Without a count it says only that it goes on.
type meter struct {
	done  atomic.Int64
	count func() int64 // instead of done, when it is set
	stop  chan struct{}
	ended sync.WaitGroup
}

// meter begins to tell about work; unit formats a count, and its rate per second. A nil count is what
// the meter's own done says.
func (a *app) meter(doing string, unit func(n int64) string, count func() int64) *meter {
	m := &meter{stop: make(chan struct{}), count: count}
	if count == nil {
		m.count = m.done.Load
	}
	start := time.Now()
	m.ended.Go(func() {
		timer := time.NewTimer(progressAfter)
		defer timer.Stop()
		for {
			select {
			case <-m.stop:
				return
			case <-timer.C:
			}
			took := time.Since(start)
			text := fmt.Sprintf("troupe: %s for %s", doing, took.Round(time.Second))
			if n := m.count(); n > 0 {
				text += fmt.Sprintf(": %s, %s/s", unit(n), unit(int64(float64(n)/took.Seconds())))
			}
			a.note("%s", text)
			timer.Reset(progressEvery)
		}
	})
	return m
}

// end stops the telling; nothing is said afterwards.
func (m *meter) end() {
	close(m.stop)
	m.ended.Wait()
}

// through counts what is written to w.
func (m *meter) through(w io.Writer) io.Writer { return meterWriter{w, m} }

type meterWriter struct {
	io.Writer
	m *meter
}

// Write counts what it passes on.
func (w meterWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	w.m.done.Add(int64(n))
	return n, err
}

// bytesText writes an amount of data for people.
func bytesText(n int64) string {
	for _, u := range []struct {
		size config.Size
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if config.Size(n) >= u.size {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(u.size), u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}
