package badger

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// flipsAll set to all flips every written byte instead of some random ones; set to seed=N it
// repeats the random ones of a run.
const (
	flipsAll  = "TROUPE_TEST_FLIPS"
	flipCount = 500

	flipDir       = "TROUPE_TEST_FLIP_DIR"  // in a child: where the store to damage lies
	flipEncrypted = "TROUPE_TEST_FLIP_KEY"  // in a child: it is encrypted
	flipMany      = "TROUPE_TEST_FLIP_MANY" // in a child: it is gapStore's
)

// flipKey is the key of the store to damage, nil when it is not encrypted.
func flipKey() []byte {
	if os.Getenv(flipEncrypted) == "" {
		return nil
	}
	return bytes.Repeat([]byte("k"), 32)
}

// flipAt is one changed byte.
type flipAt struct {
	file string
	at   int
	mask byte
}

func (f flipAt) String() string { return fmt.Sprintf("%s %d %d", f.file, f.at, f.mask) }

// files are a directory's contents, without the zeros at their ends.
type files struct {
	content map[string][]byte
	size    map[string]int64
}

func readFiles(dir string) (files, error) {
	out := files{map[string][]byte{}, map[string]int64{}}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || name == filepath.Join("db", "LOCK") {
			return err
		}
		b, err := os.ReadFile(path)
		out.content[name], out.size[name] = bytes.TrimRight(b, "\x00"), int64(len(b))
		return err
	})
	return out, err
}

func (f files) write(dir string) error {
	for name, b := range f.content {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			return err
		}
		if err := os.Truncate(path, f.size[name]); err != nil {
			return err
		}
	}
	return nil
}

// flipped is a copy with one byte changed.
func (f files) flipped(at flipAt) files {
	out := files{maps.Clone(f.content), f.size}
	b := bytes.Clone(f.content[at.file])
	if at.at >= len(b) { // in the zeros behind what was written
		b = append(b, make([]byte, at.at+1-len(b))...)
	}
	b[at.at] ^= at.mask
	out.content[at.file] = b
	return out
}

// flipStore fills a store with some of everything that it can hold.
func flipStore(t *testing.T, s *Store) {
	t.Helper()
	ctx := context.Background()
	appendTo(t, s, "wrk/a", "one", 6)
	appendTo(t, s, "wrk/b", "two", 6)
	appendTo(t, s, "ses/one", "one", 3)
	l, err := s.Claim(ctx, "wrk/c", "test")
	if err != nil {
		t.Fatal(err)
	}
	long := bytes.Repeat([]byte(longBody), persistence.BlobThreshold/8)
	_, err = s.Append(ctx, persistence.Batch{
		Lease: l, Expect: 1, Session: "two", Records: []*messages.Record{{RecordId: make([]byte, 16), Type: 1, Body: long}},
		Keys:   []persistence.Key{{Name: "in/1", Value: []byte("first")}},
		Index:  []persistence.IndexOp{{Key: "ses/one", Value: []byte("a session")}, {Key: "ses/two", Value: []byte("another")}},
		Timers: []persistence.TimerOp{{ID: "t1", Due: time.Unix(100, 0), Value: []byte("wake up")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.PutSnapshot(ctx, l, &messages.Snapshot{Seq: 1, State: []byte("a fold")}); err != nil {
		t.Fatal(err)
	}
}

// dump asks a store everything that was put into it. Each answer is text, or an error.
func dump(s *Store) (map[string]string, map[string]error) {
	ctx, got, errs := context.Background(), map[string]string{}, map[string]error{}
	collect := func(what string, run func(add func(format string, args ...any)) error) {
		var b strings.Builder
		if err := run(func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }); err != nil {
			errs[what] = err
		}
		got[what] = b.String()
	}
	for _, stream := range []string{"wrk/a", "wrk/b", "wrk/c", "ses/one"} {
		collect("stream "+stream, func(add func(string, ...any)) error {
			return s.Read(ctx, stream, 1, func(e persistence.Entry) error { add("%s %d %v", e.Session, e.Cursor, e.Record); return nil })
		})
		collect("head "+stream, func(add func(string, ...any)) error { n, err := s.Head(ctx, stream); add("%d", n); return err })
	}
	for _, session := range []string{"one", "two"} {
		collect("session "+session, func(add func(string, ...any)) error {
			return s.ReadSession(ctx, session, 0, func(e persistence.Entry) error { add("%s %d %v", e.Stream, e.Cursor, e.Record); return nil })
		})
		collect("cursor "+session, func(add func(string, ...any)) error { n, err := s.Cursor(ctx, session); add("%d", n); return err })
	}
	collect("streams", func(add func(string, ...any)) error {
		return s.Streams(ctx, "", func(name string) error { add("%s", name); return nil })
	})
	collect("index", func(add func(string, ...any)) error {
		return s.Index(ctx, "", func(k string, v []byte) error { add("%s %s", k, v); return nil })
	})
	collect("key", func(add func(string, ...any)) error { v, err := s.Lookup(ctx, "in/1"); add("%s", v); return err })
	collect("timers", func(add func(string, ...any)) error {
		return s.Due(ctx, time.Unix(1000, 0), func(tm persistence.Timer) error { add("%s %d %s", tm.ID, tm.Due.Unix(), tm.Value); return nil })
	})
	collect("snapshot", func(add func(string, ...any)) error { v, err := s.Snapshot(ctx, "wrk/c", 0); add("%v", v); return err })
	return got, errs
}

// refused says whether an error is one that a damaged store may give, at opening and at reading.
func refused(err error) bool {
	for _, kind := range []error{persistence.ErrCorrupt, persistence.ErrAckedDataMissing, persistence.ErrUnavailable, persistence.ErrKey} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// What comes of a flip.
const (
	flipRefused     = "refused"     // the store did not open
	flipQuarantined = "quarantined" // streams are refused
	flipHarmless    = "harmless"
)

// answered asks the store of a flip test everything.
func answered(s *Store) (map[string]string, map[string]error) {
	if os.Getenv(flipMany) != "" {
		return gapDump(s)
	}
	return dump(s)
}

// tryFlip opens a damaged copy and says what is wrong with the answers, "" when nothing is, and what came of it.
func tryFlip(base files, want map[string]string, f flipAt) (problem, outcome string) {
	dir, err := os.MkdirTemp("", "troupe-flip-")
	if err != nil {
		return err.Error(), flipRefused
	}
	defer os.RemoveAll(dir)
	damaged := base.flipped(f)
	if err := damaged.write(dir); err != nil {
		return err.Error(), flipRefused
	}
	s, err := Open(context.Background(), Options{Dir: dir, Ballast: -1, EncryptionKey: flipKey()})
	if err != nil {
		return afterRefusal(dir, damaged, err), flipRefused
	}
	defer s.Close()
	got, errs := answered(s)
	if problem = wrongAnswers(s, want, got, errs); problem == "" && os.Getenv(flipMany) != "" {
		problem = wrongStreams(base, f, s.lost, want, got, errs)
	}
	if s.lost != nil {
		return problem, flipQuarantined
	}
	return problem, flipHarmless
}

// wrongAnswers says what is wrong with the answers of a store that opened.
func wrongAnswers(s *Store, want, got map[string]string, errs map[string]error) string {
	for what, text := range want {
		switch err := errs[what]; {
		case what == "snapshot" && errors.Is(err, persistence.ErrNotFound) && s.lost != nil: // the stream is folded from its beginning
		case err != nil && !refused(err):
			return fmt.Sprintf("%s: untyped error %v", what, err)
		case err == nil && got[what] != text:
			return fmt.Sprintf("%s: other data: %q instead of %q", what, got[what], text)
		case err != nil && !strings.HasPrefix(text, got[what]) && strings.HasPrefix(what, "stream"):
			return fmt.Sprintf("%s: other data before the error", what)
		}
	}
	if _, err := s.Verify(context.Background(), nil, func(persistence.Finding) {}); err != nil && !refused(err) {
		return fmt.Sprintf("verify: untyped error %v", err)
	}
	return ""
}

// afterRefusal checks an opening that was refused: with a reason, and without a trace.
func afterRefusal(dir string, before files, err error) string {
	if !refused(err) {
		return fmt.Sprintf("open: untyped error %v", err)
	}
	if strings.Contains(err.Error(), "\n") && strings.Contains(err.Error(), "goroutine") {
		return fmt.Sprintf("open: a stack instead of a message: %v", err)
	}
	after, err := readFiles(dir)
	if err != nil {
		return err.Error()
	}
	for name, b := range before.content {
		if strings.HasPrefix(name, "db"+string(filepath.Separator)) && !bytes.Equal(after.content[name], bytes.TrimRight(b, "\x00")) {
			return "open: refused, and " + name + " was changed"
		}
	}
	return ""
}

// flipChild tries the flips that it is told, and says what came of each.
func flipChild(dir string) {
	base, err := readFiles(dir)
	if err != nil {
		fmt.Println("failed", err)
		return
	}
	want, err := expected(base)
	if err != nil {
		fmt.Println("failed", err)
		return
	}
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var f flipAt
		if _, err := fmt.Sscan(lines.Text(), &f.file, &f.at, &f.mask); err != nil {
			fmt.Println("failed", err)
			return
		}
		problem, outcome := tryFlip(base, want, f)
		fmt.Println("done", outcome, strconv.Quote(problem))
	}
}

// expected is what the undamaged store answers.
func expected(base files) (map[string]string, error) {
	dir, err := os.MkdirTemp("", "troupe-flip-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := base.write(dir); err != nil {
		return nil, err
	}
	s, err := Open(context.Background(), Options{Dir: dir, Ballast: -1, EncryptionKey: flipKey()})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	got, errs := answered(s)
	for what, err := range errs {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return got, nil
}

// flipper is a child, restarted when a flip kills it.
type flipper struct {
	t     *testing.T
	dir   string
	cmd   *exec.Cmd
	in    io.WriteCloser
	many  bool
	lines chan string
	stop  bytes.Buffer // what it said when it died
}

func (f *flipper) start() {
	f.cmd = exec.Command(os.Args[0])
	f.cmd.Env = append(os.Environ(), flipDir+"="+f.dir)
	if f.many {
		f.cmd.Env = append(f.cmd.Env, flipMany+"=1")
	}
	f.stop.Reset()
	f.cmd.Stderr = &f.stop
	in, err := f.cmd.StdinPipe()
	if err != nil {
		f.t.Error(err)
		return
	}
	out, err := f.cmd.StdoutPipe()
	if err != nil {
		f.t.Error(err)
		return
	}
	if err := f.cmd.Start(); err != nil {
		f.t.Error(err)
		return
	}
	f.in, f.lines = in, make(chan string, 1)
	go func() {
		defer close(f.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			f.lines <- s.Text()
		}
	}()
	if line := f.next(); line != "ready" {
		f.t.Errorf("child said %q: %s", line, f.stop.String())
	}
}

// next waits for a line; "" when the child is gone or hangs.
func (f *flipper) next() string {
	bound := time.NewTimer(2 * time.Minute)
	defer bound.Stop()
	select {
	case line := <-f.lines:
		return line
	case <-bound.C:
		f.t.Error("no answer within two minutes")
		return ""
	}
}

func (f *flipper) end() {
	_ = f.in.Close()
	_ = f.cmd.Process.Kill()
	for line := range f.lines { // until its output ends
		_ = line
	}
	_ = f.cmd.Wait()
}

// try says what came of a flip.
func (f *flipper) try(flip flipAt) (outcome string) {
	_, _ = fmt.Fprintln(f.in, flip) // a dead child answers nothing
	line := f.next()
	outcome, quoted, _ := strings.Cut(strings.TrimPrefix(line, "done "), " ")
	problem, err := strconv.Unquote(quoted)
	if err == nil {
		if problem != "" {
			f.t.Errorf("flip %s: %s", flip, problem)
		}
		return outcome
	}
	f.end()
	f.t.Errorf("flip %s: the process ended: %.600s", flip, f.stop.String())
	f.start()
	return "killed"
}

// spareRun is how many zeros in a row are room that was allocated ahead, and not what was written.
const spareRun = 64

// longBody is what the body of flipStore repeats: one of its bytes is like the others.
const longBody = "a long body "

// spare says of each byte whether it is in such a row, or within the long body.
func spare(b []byte) []bool {
	out, from := make([]bool, len(b)), 0
	for i, size := 0, 2*len(longBody); i+size <= len(b); i++ {
		out[i+size/2] = string(b[i:i+size]) == longBody+longBody || i > 0 && out[i+size/2-1] && b[i+size-1] == b[i+size-1-len(longBody)]
	}
	for at := range len(b) + 1 {
		if at < len(b) && b[at] == 0 {
			continue
		}
		for i := from; at-from >= spareRun && i < at; i++ {
			out[i] = true
		}
		from = at + 1
	}
	return out
}

// chooseFlips picks the bytes to change: of each file what was written, and some of the zeros in between and behind.
func chooseFlips(t *testing.T, base files, count int) []flipAt {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	mode := os.Getenv(flipsAll)
	if n, err := strconv.ParseUint(strings.TrimPrefix(mode, "seed="), 10, 64); err == nil {
		seed, mode = n, ""
	}
	t.Logf("%s=seed=%d repeats these flips", flipsAll, seed)
	r := rand.New(rand.NewPCG(seed, 1))
	var all []flipAt
	for _, name := range slices.Sorted(maps.Keys(base.content)) {
		for at, room := range spare(base.content[name]) {
			if room && r.IntN(spareRun) > 0 {
				continue
			}
			all = append(all, flipAt{name, at, byte(1 << r.IntN(8))})
		}
		if zeros := base.size[name] - int64(len(base.content[name])); zeros > 0 {
			for range 20 {
				all = append(all, flipAt{name, len(base.content[name]) + int(r.Int64N(min(zeros, 1<<20))), byte(1 + r.IntN(255))})
			}
		}
	}
	if mode != "" {
		t.Logf("%d flips of %d files", len(all), len(base.content))
		return all
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(len(all), count)]
}

func tryFlips(t *testing.T, dir string, count int, many bool) map[string]int {
	t.Helper()
	base, err := readFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	var queue sync.Mutex
	flips := chooseFlips(t, base, count)
	outcomes := map[string]int{}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			f := &flipper{t: t, dir: dir, many: many}
			f.start()
			defer f.end()
			for {
				queue.Lock()
				if len(flips) == 0 {
					queue.Unlock()
					return
				}
				next := flips[0]
				flips = flips[1:]
				queue.Unlock()
				outcome := f.try(next)
				queue.Lock()
				outcomes[outcome]++
				queue.Unlock()
			}
		})
	}
	wg.Wait()
	t.Logf("what came of the flips: %v", outcomes)
	return outcomes
}

func TestAnyFlippedByteOfAClosedStoreIsRefusedOrHarmless(t *testing.T) {
	dir := t.TempDir()
	s := openIn(t, dir)
	flipStore(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	tryFlips(t, dir, flipCount, false)
}

func TestAnyFlippedByteOfAKilledStoreIsRefusedOrHarmless(t *testing.T) {
	s := openIn(t, t.TempDir())
	flipStore(t, s)
	count := flipCount // each costs tens of milliseconds: its log is 64 MiB long
	if testing.Short() {
		count = 20
	}
	tryFlips(t, image(t, s.opts.Dir), count, false)
}
