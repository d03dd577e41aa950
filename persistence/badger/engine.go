package badger

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	engine "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
)

// memTable is the size of the table in memory and of the log behind it. A transaction is at most
// 15 % of it, which bounds a group; opening maps as much and a crash replays at most five.
const memTable = 24 << 20

// memTableBefore is the size that earlier releases gave it.
const memTableBefore = 32 << 20

// memTableOf is the size with which a database is opened. The log of a process that was killed is read into a table of it as a whole, and the database ends
// the process when that does not fit: a log that is not as long as those that are made with the size of today may have been written with the one before.
func memTableOf(dir string) int64 {
	logs, _ := filepath.Glob(filepath.Join(dir, "*.mem")) // dir is no pattern that could be wrong: without logs there is nothing to fit
	for _, name := range logs {
		if info, err := os.Stat(name); err == nil && info.Size() > 0 && info.Size() != 2*memTable {
			return memTableBefore
		}
	}
	return memTable
}

// mergeFrom is how many tables of the first level, which are all looked at by each read, a brief process leaves as they are.
const mergeFrom = 10

// leave keeps the database from merging tables. A flush must then not wait for that.
func leave(opts engine.Options) engine.Options {
	return opts.WithNumCompactors(0).WithNumLevelZeroTablesStall(math.MaxInt)
}

// engineOptions are the database's. Values never reach its value log (pieceSize), so that log is
// kept as small as it may be.
func engineOptions(dir string, o Options, logger *engineLog) engine.Options {
	opts := engine.DefaultOptions(dir).
		WithSyncWrites(true).
		WithDetectConflicts(false).
		WithNumVersionsToKeep(1).
		WithCompactL0OnClose(false).
		WithChecksumVerificationMode(options.NoVerification). // inspect has read every table
		WithCompression(options.Snappy).
		WithMetricsEnabled(false).
		WithNumCompactors(2).
		WithMemTableSize(memTableOf(dir)).
		WithValueThreshold(1 << 20).
		WithValueLogFileSize(1 << 20).
		WithBlockCacheSize(o.BlockCache).
		WithLogger(logger)
	if o.EncryptionKey == nil {
		return opts
	}
	return opts.WithEncryptionKey(o.EncryptionKey).WithEncryptionKeyRotationDuration(dataKeyLife).WithIndexCacheSize(indexCache)
}

// dataKeyLife is how long a data key of the database encrypts what is new.
const dataKeyLife = 10 * 24 * time.Hour

// indexCache is the memory for indexes of tables that are encrypted, which the database cannot
// read where they lie.
const indexCache = 16 << 20

// engineLog hands the database's messages to slog and listens to what it only logs: a failed
// sync or flush, and a table that it leaves out.
type engineLog struct {
	log  *slog.Logger
	hold func() // before a merged table is written; nil: nothing

	mu      sync.Mutex
	serious error       // the first one, until there is a store to fail
	fail    func(error) // the store's, once it is open
}

// Errorf logs an error and fails the store when it means that data is not kept.
func (l *engineLog) Errorf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	l.log.Error("badger", "message", strings.TrimSpace(text))
	if !serious(format, text) {
		return
	}
	l.mu.Lock()
	err := fmt.Errorf("badger: %s", strings.TrimSpace(text))
	if l.serious == nil {
		l.serious = err
	}
	fail := l.fail
	l.mu.Unlock()
	if fail != nil {
		fail(err)
	}
}

// serious knows the messages behind which the database goes on without data: it retries a
// failed flush for ever, goes on after a failed sync, and leaves out a damaged table.
func serious(format, text string) bool {
	for _, begin := range []string{"error flushing memtable", "Error while curlf sync", "writeRequests", "Ignoring table"} {
		if strings.HasPrefix(format, begin) {
			return true
		}
	}
	return strings.Contains(text, "CHECKSUM_MISMATCH")
}

// listen sends serious messages to a store from now on and returns one that came before.
func (l *engineLog) listen(fail func(error)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail = fail
	return l.serious
}

// Warningf logs a warning.
func (l *engineLog) Warningf(format string, args ...any) { l.write(slog.LevelWarn, format, args) }

// Infof logs what is of no interest to users.
func (l *engineLog) Infof(format string, args ...any) { l.write(slog.LevelDebug, format, args) }

// mergeSays begins what the database says when it has put together a table of a merge and is about to write it.
const mergeSays = "[%d] LOG Compact. Added"

// Debugf drops what the database says of every write. A merge waits in it for room.
func (l *engineLog) Debugf(format string, _ ...any) {
	if l.hold != nil && strings.HasPrefix(format, mergeSays) {
		l.hold()
	}
}

func (l *engineLog) write(level slog.Level, format string, args []any) {
	if l.log.Enabled(context.Background(), level) {
		l.log.Log(context.Background(), level, "badger", "message", strings.TrimSpace(fmt.Sprintf(format, args...)))
	}
}
