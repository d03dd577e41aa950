package workspace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/lockedfile"

	"github.com/troupe-dev/troupe/messages"
)

// Trusted is one folder that a person trusts.
type Trusted struct {
	Address string    `json:"address"` // canonical
	Since   time.Time `json:"since"`
}

// TrustStore keeps the trusted folders of one user in a file outside of all of them.
//
// Only the very address that was trusted is: neither what lies below it nor above. Somebody who
// trusts ~/src has not looked at every repository that will ever be cloned there, and a stranger's
// clone must not become trusted by its place.
//
// It is safe for concurrent use, by several processes too.
type TrustStore struct {
	file string
	mu   sync.Mutex // guards the lock file within this process
}

// NewTrustStore names the file (under the user's data directory); it is read at each question,
// so that a decision made elsewhere counts at once. The file need not exist.
func NewTrustStore(file string) *TrustStore { return &TrustStore{file: file} }

type trustFile struct {
	Version int       `json:"version"`
	Folders []Trusted `json:"folders"`
}

const trustVersion = 1

// Level is FULL for an address that was trusted and RESTRICTED for any other. It is also
// RESTRICTED, with an error, when the file cannot be read or others could have written it.
func (s *TrustStore) Level(a *Address) (messages.Trust_Level, error) {
	all, err := s.List()
	if err != nil {
		return messages.Trust_RESTRICTED, err
	}
	for _, t := range all {
		if t.Address == a.Canonical {
			return messages.Trust_FULL, nil
		}
	}
	return messages.Trust_RESTRICTED, nil
}

// List gives what is trusted, in the order of addresses.
func (s *TrustStore) List() ([]Trusted, error) {
	f, err := os.Open(s.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read trusted folders: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read trusted folders: %w", err)
	}
	if othersMayWrite(info) {
		return nil, fmt.Errorf("read trusted folders: %s can be written by other users (mode %v): chmod 600 it", s.file, info.Mode().Perm())
	}
	var content trustFile
	if err := json.NewDecoder(f).Decode(&content); err != nil {
		return nil, fmt.Errorf("read trusted folders from %s: %w", s.file, err)
	}
	if content.Version != trustVersion {
		return nil, fmt.Errorf("read trusted folders from %s: version %d is not known to this program", s.file, content.Version)
	}
	return content.Folders, nil
}

// Trust remembers a folder; since is when the person said so. Only folders of this machine and
// client folders can be trusted: a server folder is by itself, a clone never.
func (s *TrustStore) Trust(a *Address, since time.Time) error {
	if a.Kind != KindClient {
		return fmt.Errorf("trust %s: only folders of people can be trusted, not a %s workspace", a, a.Kind)
	}
	return s.change(func(all []Trusted) []Trusted {
		if slices.ContainsFunc(all, func(t Trusted) bool { return t.Address == a.Canonical }) {
			return all
		}
		return append(all, Trusted{Address: a.Canonical, Since: since.UTC()})
	})
}

// Untrust forgets a folder. found is false when it was not trusted.
func (s *TrustStore) Untrust(a *Address) (found bool, err error) {
	err = s.change(func(all []Trusted) []Trusted {
		kept := slices.DeleteFunc(slices.Clone(all), func(t Trusted) bool { return t.Address == a.Canonical })
		found = len(kept) != len(all)
		return kept
	})
	return found, err
}

// change reads, changes and replaces the file under a lock that other processes respect.
func (s *TrustStore) change(edit func([]Trusted) []Trusted) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := os.MkdirAll(filepath.Dir(s.file), 0o700); err != nil {
		return fmt.Errorf("make the folder of trusted folders: %w", err)
	}
	unlock, err := lockedfile.MutexAt(s.file + ".lock").Lock()
	if err != nil {
		return fmt.Errorf("lock trusted folders: %w", err)
	}
	defer unlock()
	all, err := s.List()
	if err != nil {
		return err
	}
	content := trustFile{Version: trustVersion, Folders: edit(all)}
	slices.SortFunc(content.Folders, func(a, b Trusted) int { return strings.Compare(a.Address, b.Address) })
	data, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return fmt.Errorf("encode trusted folders: %w", err)
	}
	return replaceFile(s.file, append(data, '\n'))
}

// replaceFile writes a private file by way of a rename.
func replaceFile(name string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), TempPrefix+"*") // mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the error that matters is the first
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
