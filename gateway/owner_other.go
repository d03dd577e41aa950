//go:build !linux && !darwin

package gateway

import "io/fs"

// ownedByUs knows nothing here: what is below the user's own folders is taken to be the user's.
func ownedByUs(fs.FileInfo) bool { return true }
