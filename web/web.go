// Package web is the console: a page that talks to the HTTP API it is served with. Its sources are in src,
// what was built of them is in dist, committed and embedded, so that building troupe needs Go alone. `make web` builds it anew.
package web

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"path"
)

//go:embed dist/index.html dist/console.js dist/console.css dist/icon.svg
var dist embed.FS

// Page is the name of the file that every page of the console is.
const Page = "index.html"

// File is one file as a browser gets it.
type File struct {
	Data []byte
	Type string // for Content-Type
	Tag  string // for ETag, quotes included: it changes with the content
}

// Open finds a file by its name.
func Open(name string) (File, bool) {
	kind := map[string]string{
		".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
	}[path.Ext(name)]
	data, err := dist.ReadFile("dist/" + name)
	if err != nil || kind == "" {
		return File{}, false
	}
	sum := sha256.Sum256(data)
	return File{Data: data, Type: kind, Tag: `"` + hex.EncodeToString(sum[:12]) + `"`}, true
}
