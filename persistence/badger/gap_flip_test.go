package badger

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	engine "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"

	"github.com/troupe-dev/troupe/persistence"
)

// TestAFlippedByteOfRecordsRefusesTheirStreamsOnly has tables most of whose blocks are records.
func TestAFlippedByteOfRecordsRefusesTheirStreamsOnly(t *testing.T) {
	dir, _ := closedGapStore(t)
	count := flipCount
	if testing.Short() {
		count = 60
	}
	if n := tryFlips(t, dir, count, true); n[flipQuarantined] < count/2 {
		t.Errorf("%v is not what this is about", n)
	}
}

// wrongStreams says when others are refused than those whose records were in the block that was hit.
func wrongStreams(base files, f flipAt, lost *gaps, want, got map[string]string, errs map[string]error) string {
	if lost == nil {
		if len(errs) > 0 || !maps.Equal(got, want) {
			return fmt.Sprintf("it opens whole, and answers with %v", errs)
		}
		return ""
	}
	names := base.hit(f)
	for i := range gapSessions {
		stream := gapStream(i)
		var unlike []string
		for _, what := range []string{"stream " + stream, "head " + stream, fmt.Sprintf("session s%02d", i)} {
			if slices.Contains(names, stream) != errors.Is(errs[what], persistence.ErrCorrupt) {
				unlike = append(unlike, fmt.Sprintf("%s: %v", what, errs[what]))
			}
		}
		if len(unlike) > 0 {
			return fmt.Sprintf("%q were in the block: %q", names, unlike)
		}
	}
	return ""
}

// hit are the streams whose records are in the block of a table that a flip changes.
func (f files) hit(at flipAt) (names []string) {
	t, err := readTable(f.content[at.file], engine.TableManifest{Compression: options.Snappy}, &keyring{})
	if err != nil {
		return []string{err.Error()}
	}
	for i, p := range t.blocks {
		if uint64(at.at) < p.off || uint64(at.at) >= p.off+p.len {
			continue
		}
		entries, _ := t.block(i) // none when it does not read, which shows
		for _, e := range entries {
			if name, _, ok := splitName(e.key[:len(e.key)-8]); ok && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}
