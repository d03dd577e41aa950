package messages

import (
	"path"
	"strings"
)

// ModelInFile says whether a model, as it is asked for, is a file of the machine that runs it: a script, or a recording. An alias of the configuration
// is none, wherever it leads.
func ModelInFile(name string) bool {
	provider, file, _ := strings.Cut(name, "/")
	return provider == "scripted" && (strings.ContainsAny(file, `/\`) || path.Ext(file) != "") || provider == "replay"
}
