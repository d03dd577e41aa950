package badger

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/dgraph-io/badger/v4/y"
)

// A log that another one follows was written to its end, and synced, before that one was begun. So one that is torn, and that others with
// transactions follow, has lost something, which the watermark does not tell: the count of commits is in the others. Every transaction has the
// version after the one before it, so a log without loss ends where the next one begins.

// row looks whether a torn log is one that others follow, and has lost something.
func (in *inspection) row() error {
	names := in.logNames()
	for i, name := range names {
		if !in.logs[name].rest {
			continue
		}
		l, err := in.versionsOf(name)
		if err != nil {
			return err
		}
		for _, other := range names[i+1:] {
			next, err := in.versionsOf(other)
			if err != nil {
				return err
			}
			if next.to == 0 { // it holds no transaction
				continue
			}
			if l.to == 0 || next.from != l.to+1 {
				in.found(name, "it does not read behind version %d, and %s goes on with version %d", l.to, other, next.from)
			}
			break
		}
	}
	return nil
}

// logNames are the logs, the oldest first.
func (in *inspection) logNames() []string {
	paths, _ := filepath.Glob(filepath.Join(in.dir, "*"+logSuffix)) // the pattern is a good one
	names := make([]string, len(paths))
	for i, path := range paths {
		names[i] = filepath.Base(path)
	}
	slices.Sort(names) // five digits and more: there are never as many
	return names
}

// versionsOf are the versions in a log, as far as it reads.
func (in *inspection) versionsOf(name string) (versions, error) {
	b, err := os.ReadFile(filepath.Join(in.dir, name))
	if err != nil {
		return versions{}, fmt.Errorf("read %s: %w", name, err)
	}
	l, end := versions{from: ^uint64(0)}, scanLog(b).end
	for at := logHeader; at < end; {
		e, n := entryAt(b, at)
		if key, _, err := in.keys.decrypt(b, e, at); err == nil && len(key) > 8 {
			l.from, l.to = min(l.from, y.ParseTs(key)), max(l.to, y.ParseTs(key))
		}
		at += n
	}
	return l, nil
}
