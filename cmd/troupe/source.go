package main

import (
	"context"
	"io"
	"strings"
	"sync"
)

// source is standard input read by more than one reader, one after the other, but for a question that is put while somebody listens: a reader that is told to stop takes nothing from the
// next one. It reads from the system only when somebody wants something; that read cannot be woken, stays behind when its
// reader is told to stop, and serves the next one, or ends with the process.
type source struct {
	in   io.Reader
	got  chan chunk // the answer to the read under way; nil: none is
	left []byte
	err  error

	mu     sync.Mutex // guards what follows: one listens while another one may ask
	listen bool
	asked  chan string // who wants the next line; nil: nobody
	ahead  []string    // lines that nobody has wanted yet
}

type chunk struct {
	data []byte
	err  error
}

// Fd is that of the terminal, if it is one.
func (s *source) Fd() uintptr {
	if f, ok := s.in.(interface{ Fd() uintptr }); ok {
		return f.Fd()
	}
	return ^uintptr(0)
}

// forget drops what was read and not wanted yet.
func (s *source) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead = nil
	if !s.listen { // who listens has taken all that there is
		s.left = nil
	}
}

// listening reads lines beside its caller until ctx ends, which over waits for. A question that is put from now on gets the next one, else it goes to
// take; those that take does not want are there afterwards, for whoever reads next.
func (s *source) listening(ctx context.Context, take func(line string) bool) (over func()) {
	s.mu.Lock()
	s.listen = true // before anybody else may read
	s.mu.Unlock()
	var listener sync.WaitGroup
	listener.Go(func() { s.hear(ctx, take) })
	return listener.Wait
}

// hear is who listens.
func (s *source) hear(ctx context.Context, take func(line string) bool) {
	for {
		line, err := s.line(ctx, maxPrompt)
		if err != nil {
			break
		}
		s.mu.Lock()
		to := s.asked
		s.asked = nil
		s.mu.Unlock()
		switch {
		case to != nil:
			to <- line
		case !take(line):
			s.mu.Lock()
			s.ahead = append(s.ahead, line+"\n")
			s.mu.Unlock()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listen = false
	s.left = append([]byte(strings.Join(s.ahead, "")), s.left...)
	s.ahead = nil
	if s.asked != nil {
		close(s.asked)
		s.asked = nil
	}
}

// ask wants the next line of who listens. Where nobody does it is nil.
func (s *source) ask() chan string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.listen {
		return nil
	}
	s.asked = make(chan string, 1)
	return s.asked
}

// unask wants no line any more.
func (s *source) unask() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = nil
}

// Read waits without end: most want fill.
func (s *source) Read(p []byte) (int, error) {
	if err := s.fill(context.Background()); err != nil {
		return 0, err
	}
	return copy(p, s.until(len(p), "")), nil
}

// fill makes sure that something is left, and waits for it as long as ctx allows.
func (s *source) fill(ctx context.Context) error {
	for len(s.left) == 0 {
		if s.err != nil {
			return s.err
		}
		if s.got == nil {
			s.got = make(chan chunk, 1)
			go func(to chan<- chunk) {
				b := make([]byte, 4<<10)
				n, err := s.in.Read(b)
				to <- chunk{b[:n], err}
			}(s.got)
		}
		select {
		case c := <-s.got:
			s.got, s.left, s.err = nil, c.data, c.err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// until takes what is left up to one of some bytes, and that one; else all of it, and never more than most.
func (s *source) until(most int, ends string) []byte {
	n := min(len(s.left), most)
	for i, b := range s.left[:n] {
		if strings.IndexByte(ends, b) >= 0 {
			n = i + 1
			break
		}
	}
	out := s.left[:n]
	s.left = s.left[n:]
	return out
}

// line reads a line of at most most bytes, without its end. The last one may have none; after it comes io.EOF.
func (s *source) line(ctx context.Context, most int) (string, error) {
	var line []byte
	for {
		if err := s.fill(ctx); err != nil {
			if len(line) > 0 && err == io.EOF { //nolint:errorlint // as readers give it
				return string(line), nil
			}
			s.left = line // its end is for whoever reads next
			return "", err
		}
		line = append(line, s.until(len(s.left), "\n")...)
		if n := len(line); line[n-1] == '\n' {
			return strings.TrimSuffix(string(line[:n-1]), "\r"), nil
		}
		if len(line) > most {
			return "", &exitError{code: exitInput, what: "a line of standard input is too long", hint: "put it into a file of the folder"}
		}
	}
}

// answer puts a question and reads a line as the answer to it: at the end of the input it is empty.
func (s *source) answer(ctx context.Context, question func() error) (string, error) {
	asked := s.ask() // before it is put: who answers may be quick
	if err := question(); err != nil {
		s.unask()
		return "", err
	}
	if asked != nil {
		select {
		case line := <-asked:
			return line, nil
		case <-ctx.Done():
			s.unask()
			return "", ctx.Err()
		}
	}
	line, err := s.line(ctx, 1000)
	if err != nil && ctx.Err() == nil {
		return "", nil
	}
	return line, err
}
