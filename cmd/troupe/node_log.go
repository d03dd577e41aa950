package main

import (
	"log/slog"
	"os"
	"path/filepath"

	"github.com/troupe-dev/troupe/config"
)

// logFile is the process's own log: people's terminals stay free of it.
type logFile struct {
	file   *os.File
	logger *slog.Logger
}

// maxLog is the size at which a log is put aside, as one older file, in bytes.
const maxLog = 8 << 20

// openLog opens the log below the state directory, or the one of log.file. Secrets do not reach it.
func (a *app) openLog(loaded *config.Loaded) (*logFile, error) {
	path := loaded.Config.Log.File
	if path == "" {
		path = filepath.Join(loaded.Dirs.State, "troupe.log")
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, &exitError{code: exitIO, what: "make the folder of the log: " + err.Error(), hint: "name another file with log.file", err: err}
	}
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Size() > maxLog {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, &exitError{code: exitIO, what: "put the log aside: " + err.Error(), err: err}
		}
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, &exitError{code: exitIO, what: "open the log: " + err.Error(), hint: "name another file with log.file", err: err}
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(loaded.Config.Log.Level)); err != nil {
		level = slog.LevelWarn
	}
	options := &slog.HandlerOptions{Level: level}
	var h slog.Handler = slog.NewTextHandler(f, options)
	if loaded.Config.Log.Format == "json" {
		h = slog.NewJSONHandler(f, options)
	}
	h = a.secrets.Handler(h)
	return &logFile{file: f, logger: slog.New(h).With("node", os.Getpid())}, nil
}

func (l *logFile) close() error { return l.file.Close() }
