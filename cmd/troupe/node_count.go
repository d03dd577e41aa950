package main

import (
	"net"
	"net/http"
	"strconv"
	"sync"

	"github.com/troupe-dev/troupe/client"
)

// countingListener counts who is connected: each command has one connection at least, and often more.
type countingListener struct {
	net.Listener

	mu   sync.Mutex
	open map[int]int // process -> its connections; those of whom the system says nothing have numbers of their own, below 0
	next int

	watchers map[int]bool // processes that only watch, and that nobody waits for
}

// Accept counts what it returns until that is closed.
func (l *countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	pid := peerPID(c)
	if pid <= 0 {
		l.next--
		pid = l.next
	}
	if l.open == nil {
		l.open = make(map[int]int)
	}
	l.open[pid]++
	return &countedConn{Conn: c, out: func() { l.left(pid) }}, nil
}

func (l *countingListener) left(pid int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[pid]--; l.open[pid] == 0 {
		delete(l.open, pid)
		delete(l.watchers, pid)
	}
}

// commands is how many processes are connected that do more than watch.
func (l *countingListener) commands() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open) - len(l.watchers)
}

// noting notes who says that it only watches.
func (l *countingListener) noting(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if pid, err := strconv.Atoi(r.Header.Get(client.WatcherHeader)); err == nil {
			l.watched(pid)
		}
		h.ServeHTTP(w, r)
	})
}

func (l *countingListener) watched(pid int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[pid] == 0 {
		return // nobody has that number here
	}
	if l.watchers == nil {
		l.watchers = make(map[int]bool)
	}
	l.watchers[pid] = true
}

type countedConn struct {
	net.Conn
	once sync.Once
	out  func()
}

// Close closes the connection and counts it out, once.
func (c *countedConn) Close() error {
	c.once.Do(c.out)
	return c.Conn.Close()
}
