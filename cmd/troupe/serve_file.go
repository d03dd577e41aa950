package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/troupe-dev/troupe/messages"
)

// serverFile, in the data directory, says where its server is, for as long as there is one.
const serverFile = "server.json"

// serverNote is what stands in it.
type serverNote struct {
	Pid       int    `json:"pid"`
	URL       string `json:"url"`
	Admin     string `json:"admin,omitempty"`
	Version   string `json:"version"`
	StartedAt string `json:"started_at"`
}

func (s *server) notePath() string { return filepath.Join(s.loaded.Config.Data.Dir, serverFile) }

// remember writes the note, whole or not at all.
func (s *server) remember() error {
	n := serverNote{Pid: os.Getpid(), URL: s.url(), Version: readVersion().Version, StartedAt: messages.FormatTime(s.started.UnixMilli())}
	if s.admin != nil {
		n.Admin = "http://" + s.admin.Addr().String()
	}
	text, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("encode %s: %w", serverFile, err)
	}
	temp := s.notePath() + ".new"
	if err = os.WriteFile(temp, append(text, '\n'), 0o600); err == nil {
		err = os.Rename(temp, s.notePath())
	}
	if err != nil {
		return &exitError{code: exitIO, what: "note where the server is: " + err.Error(), err: err}
	}
	return nil
}

// forget removes the note.
func (s *server) forget() error {
	if err := os.Remove(s.notePath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &exitError{code: exitIO, what: "remove the note of where the server is: " + err.Error(), err: err}
	}
	return nil
}

// notify tells the service manager what the server does, where there is one (sd_notify(3)). Whether it hears is its own affair.
func (s *server) notify(state string) {
	path := s.a.env["NOTIFY_SOCKET"]
	if path == "" {
		return
	}
	if path[0] == '@' {
		path = "\x00" + path[1:] // in the abstract name space of Linux
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err == nil {
		_, err = c.Write([]byte(state))
		err = errors.Join(err, c.Close())
	}
	if err != nil {
		s.log.Debug("the service manager was not told", "err", err)
	}
}
