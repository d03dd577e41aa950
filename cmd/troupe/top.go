package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/troupe-dev/troupe/client"
	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/messages"
)

// topFlags are the flags of `troupe top`.
type topFlags struct {
	interval time.Duration
	session  string
}

const (
	// leastInterval is how often the house is asked at most.
	leastInterval = 100 * time.Millisecond
	// topRows is how many rows are shown where the terminal does not say how many it has.
	topRows = 20
)

func newTop(a *app) *cobra.Command {
	f := &topFlags{}
	cmd := formats(&cobra.Command{
		Use:   "top",
		Short: "Show the busiest workers, again and again on a terminal",
		Long: `Show the busiest workers: what they do, what they wait for and since when, and what they have used. On a terminal the table is
renewed until Ctrl-C; elsewhere, and with -o, it is printed once. What does most comes first, then what used most.`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.interval < leastInterval {
				return usage("troupe top: --interval %s is too short: %s at least", f.interval, leastInterval)
			}
			loaded, err := a.load("")
			if err != nil {
				return err
			}
			if a.flags.format != "table" || !a.outTerm {
				return a.topOnce(cmd.Context(), loaded, f)
			}
			return a.topLive(cmd.Context(), loaded, f)
		},
	}, "table", "json", "yaml")
	cmd.Flags().DurationVar(&f.interval, "interval", 2*time.Second, "`TIME` between two looks")
	cmd.Flags().StringVarP(&f.session, "session", "s", "", "only the workers of the session `ID`")
	return cmd
}

// topOnce prints one table.
func (a *app) topOnce(ctx context.Context, loaded *config.Loaded, f *topFlags) error {
	none := func() error {
		a.note(`troupe: there are no workers; a session has one: troupe run "..."`)
		return a.emit([]any{}, func(io.Writer) error { return nil })
	}
	return a.look(ctx, loaded, none, func(ctx context.Context, n node) error {
		all, err := busiest(ctx, n, f.session)
		if err != nil {
			return err
		}
		if len(all) == 0 {
			return none()
		}
		return a.emit(all, func(w io.Writer) error { return table(w, topHead(), topTable(all, time.Now())) })
	})
}

// topLive prints the table again and again, over the one before where the terminal can.
func (a *app) topLive(ctx context.Context, loaded *config.Loaded, f *topFlags) error {
	tick := time.NewTicker(f.interval)
	defer tick.Stop()
	draw := a.redrawn()
	for {
		text, err := a.topText(ctx, loaded, f)
		if err != nil {
			return err
		}
		if err := draw(text); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil // it was looked at for as long as somebody wanted
		}
	}
}

// redrawn prints a text over the one that it printed before, where the terminal can.
func (a *app) redrawn() func(text string) error {
	above := 0
	return func(text string) error {
		lines := strings.Count(text, "\n")
		if a.styleFor(a.outTerm).on && above > 0 {
			text = fmt.Sprintf("\x1b[%dA\x1b[J", above) + text
		}
		above = lines
		return written(io.WriteString(a.out, text))
	}
}

// narrowed is a text of which no line is wider than that.
func narrowed(text string, width int) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if r := []rune(line); len(r) > width {
			line = string(r[:width])
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// topText is one table for a terminal. Where no process works there is nothing live: the store is not opened again and again.
func (a *app) topText(ctx context.Context, loaded *config.Loaded, f *topFlags) (string, error) {
	n, done, err := a.topNode(ctx, loaded)
	if errors.Is(err, client.ErrNoHolder) {
		return time.Now().Format(time.TimeOnly) + "  no process works on " + visible(loaded.Config.Data.Dir) + "\n", nil
	}
	if err != nil {
		return "", err
	}
	all, err := busiest(ctx, n, f.session)
	inMemory := ""
	if err == nil {
		inMemory, err = memoryText(ctx, n)
	}
	if cerr := done(); err == nil && cerr != nil {
		a.note("troupe: warning: %v", cerr)
	}
	if err != nil {
		return "", err
	}
	width, height := a.size()
	working := 0
	for _, w := range all {
		if w.State != "inactive" {
			working++
		}
	}
	var out bytes.Buffer
	rows := fitted(append([][]string{topHead()}, topTable(all[:min(len(all), height)], time.Now())...), width)
	if err := table(&out, rows[0], rows[1:]); err != nil {
		return "", err
	}
	text := fmt.Sprintf("%s  %s, %d at work%s\n", time.Now().Format(time.TimeOnly), count(len(all), "worker"), working, inMemory)
	return narrowed(text+out.String(), width), nil // a line that is broken would be two to the next table
}

// topNode reaches who works on the data directory, as one who only watches.
func (a *app) topNode(ctx context.Context, loaded *config.Loaded) (node, func() error, error) {
	var h *house
	var err error
	if loaded.Config.Server.URL != "" {
		h, err = a.remoteHouse(ctx, loaded)
	} else {
		h, err = attach(ctx, loaded.Config.Data.Dir)
	}
	if err != nil {
		return nil, nil, err
	}
	h.client.Watch()
	return h, func() error { return h.close(ctx) }, nil
}

// size is how many columns the terminal has, and how many rows for workers.
func (a *app) size() (width, rows int) {
	f, ok := a.out.(interface{ Fd() uintptr })
	if !ok {
		return 1 << 16, topRows
	}
	width, height, err := term.GetSize(int(f.Fd()))
	if err != nil || width < 1 || height < 1 {
		return 1 << 16, topRows
	}
	return width, max(1, height-4)
}

// busiest lists the workers, those that do most first, then those that used most.
func busiest(ctx context.Context, n node, session string) ([]messages.WorkerJSON, error) {
	found, err := ask[*messages.Workers](ctx, n, &messages.ListWorkers{SessionId: session})
	if err != nil {
		return nil, err
	}
	rank := []string{"inactive", "inactive_failed", "waiting", "working", "requesting", "receiving", "using_tool"}
	all := found.JSON()
	slices.SortStableFunc(all, func(a, b messages.WorkerJSON) int {
		return cmp.Or(
			cmp.Compare(slices.Index(rank, b.State), slices.Index(rank, a.State)),
			cmp.Compare(used(&b), used(&a)),
		)
	})
	return all, nil
}

// memoryText says how many sessions are in memory, and what the process takes.
func memoryText(ctx context.Context, n node) (string, error) {
	t, err := ask[*messages.Tree](ctx, n, &messages.DescribeTree{})
	if err != nil {
		return "", err
	}
	sessions := 0
	for _, k := range t.GetRoot().GetChildren() {
		if k.GetKind() == "session" {
			sessions++
		}
	}
	text := fmt.Sprintf("; %s", count(sessions, "session"))
	if room := t.GetRoot().GetRoom(); room > 0 {
		text += fmt.Sprintf(" of at most %d", room)
	}
	return fmt.Sprintf("%s in memory, %.1f MB", text, float64(t.GetRoot().GetMemoryBytes())/(1<<20)), nil
}

// kilobytes is what a worker takes in memory; nothing of one that is not there.
func kilobytes(n int64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatInt((n+1023)/1024, 10)
}

func used(w *messages.WorkerJSON) int64 { return w.Usage.InputTokens + w.Usage.OutputTokens }

func topHead() []string {
	return []string{"WORKER", "STATE", "SINCE", "WAITS FOR", "MODEL", "TURNS", "TOKENS", "KB", "PENDING", "SESSION"}
}

func topTable(all []messages.WorkerJSON, now time.Time) [][]string {
	var rows [][]string
	for _, w := range all {
		since, waits := w.UpdatedAt, ""
		switch {
		case w.Quarantined:
			waits = "a release"
		case w.Approvals > 0:
			waits = count(int(w.Approvals), "approval")
		case w.InDoubt > 0:
			waits = count(int(w.InDoubt), "call in doubt", "calls in doubt")
		case w.Calls > 0:
			waits = count(int(w.Calls), "call")
		}
		if w.Waiting != nil {
			since = w.Waiting.Since
			if waits == "" {
				waits = strings.TrimSpace(w.Waiting.Kind + " " + w.Waiting.Subject)
				if w.Waiting.Step != "" {
					waits = w.Waiting.Kind + " of step " + w.Waiting.Step
				}
			}
		}
		lasts := ""
		if t, err := time.Parse(time.RFC3339Nano, since); err == nil {
			lasts = ago(now.Sub(t))
		}
		rows = append(rows, []string{
			w.ID, w.State, lasts, oneLine(waits, 40), w.Model, strconv.Itoa(int(w.Turns)), strconv.FormatInt(used(&w), 10), kilobytes(w.Memory),
			strconv.Itoa(int(w.Pending + w.Staged)), w.Session,
		})
	}
	return rows
}
