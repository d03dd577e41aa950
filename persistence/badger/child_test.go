package badger

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/troupe-dev/troupe/persistence"
)

// The test binary started again with this variable is a child that writes to the directory that
// it names and says on its output what was acknowledged.
const childDir = "TROUPE_TEST_STORE"

// runChild is the child's whole life; it reports false in the parent.
func runChild() bool {
	if dir := os.Getenv(flipDir); dir != "" {
		flipChild(dir)
		return true
	}
	if dir := os.Getenv(mergeDir); dir != "" {
		mergeChild(dir)
		return true
	}
	dir := os.Getenv(childDir)
	if dir == "" {
		return false
	}
	ctx := context.Background()
	s, err := Open(ctx, Options{Dir: dir, Ballast: -1})
	if err != nil {
		fmt.Println("failed", err)
		return true
	}
	fmt.Println("open", s.Boot())
	said := make(chan string)
	for i := range 4 {
		stream := fmt.Sprintf("wrk/%d", i)
		go func() {
			l, err := s.Claim(ctx, stream, "child")
			for err == nil {
				n := 1 + int(l.Next%3)
				b := persistence.Batch{Lease: l, Expect: l.Next, Session: "ses"}
				for range n {
					b.Records = append(b.Records, textRecord(stream, l.Next))
					l.Next++
				}
				if _, err = s.Append(ctx, b); err == nil {
					said <- fmt.Sprintln("acked", stream, l.Next-1)
				}
			}
			said <- fmt.Sprintln("failed", err)
		}()
	}
	for line := range said {
		fmt.Print(line) // one write each: a kill cuts between lines
	}
	return true
}

// child is a running child and what it has said.
type child struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
	acked map[string]uint64
}

func startChild(t *testing.T, dir string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: cmd, lines: bufio.NewScanner(out), acked: map[string]uint64{}}
	t.Cleanup(c.kill)
	if line := c.next(t); !strings.HasPrefix(line, "open ") {
		t.Fatalf("child said %q", line)
	}
	return c
}

// next waits for a line and notes what it acknowledges.
func (c *child) next(t *testing.T) string {
	t.Helper()
	if !c.lines.Scan() {
		t.Fatalf("child ended: %v", c.lines.Err())
	}
	c.note(t, c.lines.Text())
	return c.lines.Text()
}

func (c *child) note(t *testing.T, line string) {
	t.Helper()
	var stream string
	var seq uint64
	if n, _ := fmt.Sscanf(line, "acked %s %d", &stream, &seq); n == 2 {
		c.acked[stream] = max(c.acked[stream], seq)
	}
	if strings.HasPrefix(line, "failed") {
		t.Fatalf("child %s", line)
	}
}

// kill ends the child as a crash does.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // gone already is as good
	_ = c.cmd.Wait()
}

func TestKilledProcessLosesNothingThatItAcknowledged(t *testing.T) {
	rounds, dir := 3, t.TempDir()
	if testing.Short() {
		rounds = 2
	}
	acked := map[string]uint64{}
	for round := range rounds {
		c := startChild(t, dir)
		for range 150 + 70*round {
			c.next(t)
		}
		if err := c.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for c.lines.Scan() { // said before it died
			c.note(t, c.lines.Text())
		}
		c.kill()
		for stream, seq := range c.acked {
			acked[stream] = max(acked[stream], seq)
		}
		s := openIn(t, dir)
		var total uint64
		for stream, seq := range acked {
			head, err := s.Head(context.Background(), stream)
			if err != nil || head < seq {
				t.Errorf("round %d: %s ends at %d, %d was acknowledged, %v", round, stream, head, seq, err)
			}
			total += head
		}
		if cursor, err := s.Cursor(context.Background(), "ses"); err != nil || cursor != total {
			t.Errorf("round %d: cursor is %d with %d records, %v", round, cursor, total, err)
		}
		sum, err := s.Verify(context.Background(), nil, func(f persistence.Finding) { t.Errorf("round %d: %+v", round, f) })
		if err != nil || uint64(sum.Records) != total {
			t.Errorf("round %d: verified %+v of %d, %v", round, sum, total, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSecondProcessIsToldWhoHoldsTheDirectory(t *testing.T) {
	dir := t.TempDir()
	c := startChild(t, dir)
	_, err := Open(context.Background(), Options{Dir: dir})
	wantLocked(t, err, dir, c.cmd.Process.Pid)
	c.kill()
	openIn(t, dir) // a dead holder's lock is free
	_, err = Open(context.Background(), Options{Dir: dir})
	wantLocked(t, err, dir, os.Getpid())
}
