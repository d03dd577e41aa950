package troupetest

import "github.com/troupe-dev/troupe/internal/linediff"

// Diff shows how lines differ from those that were expected: what is gone with "- ", what is new with "+ ", and some of what is the
// same around it. It is "" when they are equal.
func Diff(want, got []string) string { return linediff.Diff(want, got) }
