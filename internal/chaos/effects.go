package chaos

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
)

// effectLog is a file of lines that outlives every kill: it is written with O_APPEND, one line per write,
// each synced.
type effectLog struct {
	path string
	mu   sync.Mutex
	file *os.File
}

func openEffects(path string) (*effectLog, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the effect log: %w", err)
	}
	return &effectLog{path: path, file: f}, nil
}

func (l *effectLog) write(e *Effect) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode an effect: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write the effect log: %w", err)
	}
	return l.file.Sync()
}

func (l *effectLog) close() error { return l.file.Close() }

// phases are what the log has of one exec id.
func (l *effectLog) phases(exec string) (map[Phase]bool, error) {
	all, err := readEffects(l.path)
	if err != nil {
		return nil, err
	}
	found := make(map[Phase]bool)
	for _, e := range all {
		if e.Exec == exec {
			found[e.Phase] = true
		}
	}
	return found, nil
}

// readEffects reads a whole log; one that does not exist is empty.
func readEffects(path string) ([]Effect, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the effect log: %w", err)
	}
	var out []Effect
	for line := range bytes.Lines(b) {
		var e Effect
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("read line %d of the effect log: %w", len(out)+1, err)
		}
		out = append(out, e)
	}
	return out, nil
}
