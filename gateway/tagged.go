package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"
)

// paged says whether a route is a list that comes in pages. What is no list says in itself where it goes on.
func (r row) paged() bool {
	return slices.Contains(r.query, "limit") && r.out != nil && reflect.TypeOf(r.out).Kind() == reflect.Slice
}

// writeTagged answers with a list and its tag, or with 304 and nothing to who has just that: a client that asks every few seconds is sent what has changed.
func (a *api) writeTagged(w http.ResponseWriter, r *http.Request, status int, kind string, body any) {
	b, err := json.Marshal(body)
	if err != nil || status != http.StatusOK {
		a.write(w, r, status, kind, body)
		return
	}
	sum := sha256.New()
	sum.Write(b)
	sum.Write([]byte(w.Header().Get("Link"))) // there may be more behind it by now
	tag := `"` + hex.EncodeToString(sum.Sum(nil)[:16]) + `"`
	w.Header().Set("ETag", tag)
	a.begin(w)
	if !has(r.Header.Values("If-None-Match"), tag) {
		send(w, status, kind, b)
		return
	}
	w.WriteHeader(http.StatusNotModified)
}

// has says whether a tag is among those of an If-None-Match, however they are compared.
func has(said []string, tag string) bool {
	for _, line := range said {
		for one := range strings.SplitSeq(line, ",") {
			if one = strings.TrimSpace(one); one == "*" || strings.TrimPrefix(one, "W/") == tag {
				return true
			}
		}
	}
	return false
}
