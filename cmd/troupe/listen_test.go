package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
)

func TestTakenPortIsNamedWithItsSourceAndProcess(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = listen(t.Context(), "--listen", l.Addr().String())
	var e *exitError
	if !errors.As(err, &e) || e.code != exitIO {
		t.Fatalf("got %v", err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	want := fmt.Sprintf("--listen %s: port %s is taken", l.Addr(), port)
	if runtime.GOOS == "linux" {
		want += fmt.Sprintf(" by process %d", os.Getpid())
	}
	if !strings.Contains(e.what, want) || e.hint == "" {
		t.Errorf("%q (%q), want %q", e.what, e.hint, want)
	}
}
