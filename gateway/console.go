package gateway

import (
	"net/http"
	"time"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/web"
)

// consolePolicy is what a browser lets the console do: nothing of another origin, no script and no style but its files, and no
// text that becomes markup, whoever wrote it.
const consolePolicy = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// consoleRows are the pages of the console, which are one: its script reads the address. They are open, because
// there is nothing in them: what they show comes from the API, which asks who wants it.
func (a *api) consoleRows() map[string]string {
	return map[string]string{
		"GET /{$}":                  web.Page,
		"GET /approvals":            web.Page,
		"GET /workers":              web.Page,
		"GET /runs":                 web.Page,
		"GET /runs/{id}":            web.Page,
		"GET /sessions/{id}":        web.Page,
		"GET /sessions/{id}/{view}": web.Page,
		"GET /console/{file}":       "",
	}
}

func (a *api) console(file string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name := file
		if name == "" {
			name = r.PathValue("file")
		}
		f, ok := web.Open(name)
		if !ok {
			a.fail(w, r, refusal(messages.CodeNotFound, "there is nothing at %s", r.URL.Path))
			return
		}
		h := w.Header()
		h.Set("Content-Security-Policy", consolePolicy)
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-cache") // kept, and asked about each time: a new version counts at once
		h.Set("ETag", f.Tag)
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime)) // not every writer has one
		if r.Header.Get("If-None-Match") == f.Tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		h.Set("Content-Type", f.Type)
		_, _ = w.Write(f.Data) // the client may be gone
	}
}
