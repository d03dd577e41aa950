//go:build windows

package workspace

import (
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/windows"
)

// openFlags: pipes are not reached through directory names here.
const openFlags = os.O_RDONLY

// hostSlashes: both slashes separate components here.
func hostSlashes(path string) string { return strings.ReplaceAll(path, `\`, "/") }

// hostName refuses what means something else here.
func hostName(name string) bool { return windowsName(name) }

// links counts the names of an opened file; 0 when the system does not tell.
func links(f *os.File, _ fs.FileInfo) uint64 {
	if f == nil {
		return 0
	}
	var info windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(windows.Handle(f.Fd()), &info); err != nil {
		return 0
	}
	return uint64(info.NumberOfLinks)
}

// syncDir has no counterpart here: the file system journals renames.
func syncDir(*os.Root) error { return nil }

// othersMayWrite cannot be read from a mode here; the user's profile folder is private.
func othersMayWrite(fs.FileInfo) bool { return false }

// renameBetween renames by the resolved names: package os offers no rename between two handles.
func renameBetween(root *os.Root, src, dst *place) error { return root.Rename(src.real, dst.real) }
