package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/troupe-dev/troupe/internal/peer"
)

// maxSocketPath is what fits into a sockaddr_un, in bytes, with its closing zero.
const maxSocketPath = len(syscall.RawSockaddrUnix{}.Path) - 1

const (
	// socketName is the socket in a data directory. Where its path is too long for the kernel,
	// namingFile names another one.
	socketName = "troupe.sock"
	namingFile = "socket"
	// tempPrefix and tempName make up a socket below the folder for temporary files.
	tempPrefix = "troupe-"
	tempName   = "s.sock"
)

// ErrInUse says that another process answers on the socket of a data directory.
var ErrInUse = errors.New("another process serves this data directory")

// ListenSocket listens on the socket of a data directory: troupe.sock in it, of mode 0600. Where
// that path is too long for the kernel (107 bytes on Linux), the socket lies in a private folder below XDG_RUNTIME_DIR,
// or else below the folder for temporary files, and the file `socket` in the data directory names it.
// Connections of other users are closed unread. A socket on which nobody answers is replaced.
//
// Closing the listener removes the socket. It should be closed before the data directory is given
// up, so that it is never a successor's socket that goes.
func ListenSocket(dataDir string) (l net.Listener, path string, err error) {
	dir, err := filepath.Abs(dataDir)
	if err != nil {
		return nil, "", fmt.Errorf("data directory %q: %w", dataDir, err)
	}
	naming := filepath.Join(dir, namingFile)
	path = filepath.Join(dir, socketName)
	s := &socket{}
	if len(path) > maxSocketPath {
		if path, s.folder, err = shortPath(dir, naming); err != nil {
			return nil, "", fmt.Errorf("find a short path for the socket of %s: %w", dir, err)
		}
		s.naming = naming
	}
	if err := s.listen(path); err != nil {
		if s.folder != "" {
			_ = remove(s.folder) // an empty one
		}
		return nil, "", fmt.Errorf("listen on %s: %w", path, err)
	}
	if s.naming == "" {
		err = remove(naming) // of a holder that came by a longer path, and died
	} else {
		err = writeName(naming, path)
	}
	if err != nil {
		return nil, "", errors.Join(fmt.Errorf("name the socket of %s: %w", dir, err), s.Close())
	}
	return s, path, nil
}

// socket is a listener that knows its peers and cleans up.
type socket struct {
	*net.UnixListener
	naming string // file that names the socket; "" when there is none
	folder string // temporary folder of the socket; "" when there is none
	once   sync.Once
	closed error
}

func (s *socket) listen(path string) error {
	if err := clearStale(path); err != nil {
		return err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return err
	}
	// Until here the umask decides who may connect; Accept looks at every peer besides.
	if err := os.Chmod(path, 0o600); err != nil {
		return errors.Join(err, l.Close())
	}
	s.UnixListener = l
	return nil
}

// Accept waits for a connection of this process's own user.
func (s *socket) Accept() (net.Conn, error) {
	for {
		c, err := s.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if peer.Check(c) == nil {
			return c, nil
		}
		_ = c.Close() // a stranger is told nothing
	}
}

// Close stops listening and removes the socket, and what names it.
func (s *socket) Close() error {
	s.once.Do(func() {
		if s.naming != "" {
			s.closed = remove(s.naming)
		}
		s.closed = errors.Join(s.closed, s.UnixListener.Close())
		if s.folder != "" {
			s.closed = errors.Join(s.closed, remove(s.folder))
		}
	})
	return s.closed
}

// clearStale removes a socket that nobody answers on. It removes nothing else.
func clearStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&fs.ModeSocket == 0:
		return fmt.Errorf("%s is in the way: it is no socket", path)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		return errors.Join(ErrInUse, c.Close())
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case !errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w: %w", ErrInUse, err)
	}
	return remove(path)
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// shortPath finds a socket path outside the data directory, in a folder that nobody else may enter.
// folder is what goes with the socket.
func shortPath(dir, naming string) (path, folder string, err error) {
	if run := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(run) && checkPrivate(run) == nil {
		sum := sha256.Sum256([]byte(dir))
		path = filepath.Join(run, "troupe", hex.EncodeToString(sum[:8])+".sock")
		if len(path) <= maxSocketPath {
			return path, "", privateFolder(filepath.Dir(path))
		}
	}
	if old, err := os.ReadFile(naming); err == nil && isTemporary(string(old)) {
		return string(old), filepath.Dir(string(old)), nil // left by a holder that died
	}
	folder, err = os.MkdirTemp("", tempPrefix)
	if err != nil {
		return "", "", err
	}
	path = filepath.Join(folder, tempName)
	if len(path) > maxSocketPath {
		return "", "", errors.Join(fmt.Errorf("%s is too long as well: set XDG_RUNTIME_DIR", path), remove(folder))
	}
	return path, folder, nil
}

// isTemporary tells whether a path is one that shortPath made below the folder for temporary files,
// still in a folder of our own.
func isTemporary(path string) bool {
	folder := filepath.Dir(path)
	return filepath.Base(path) == tempName && strings.HasPrefix(filepath.Base(folder), tempPrefix) &&
		filepath.Dir(folder) == filepath.Clean(os.TempDir()) && checkPrivate(folder) == nil
}

func privateFolder(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return checkPrivate(dir)
}

// checkPrivate refuses a folder that is a link, belongs to another user or lets others in.
func checkPrivate(dir string) error {
	info, err := os.Lstat(dir)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is no folder", dir)
	case info.Mode().Perm()&0o077 != 0 || !ownedByUs(info):
		return fmt.Errorf("%s is not private to this user", dir)
	}
	return nil
}

// writeName makes the naming file, whole or not at all.
func writeName(naming, path string) error {
	f, err := os.CreateTemp(filepath.Dir(naming), "."+namingFile+"-")
	if err != nil {
		return err
	}
	_, err = f.WriteString(path)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), naming)
	}
	if err != nil {
		return errors.Join(err, remove(f.Name()))
	}
	return nil
}
