package gateway

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/troupe-dev/troupe/messages"
)

// page is a part of a list whose newest entries come first: limit of them, behind a cursor. The cursor is a place in the order and no entry, so
// that a list that changes meanwhile neither repeats nor leaves out what stays where it was.
type page struct {
	limit uint64 // 0: all that there are
	at    int64  // of the cursor: when the entry before the page was changed or made
	id    string // and which one that is; "": the list is read from its beginning
}

// paging reads the part that a request wants.
func paging(q url.Values) (p page, err error) {
	if p.limit, err = number("limit", q.Get("limit"), 30); err != nil {
		return p, err
	}
	after := q.Get("after")
	at, id, cut := strings.Cut(after, ".")
	if after == "" {
		return p, nil
	}
	if p.at, err = strconv.ParseInt(at, 10, 64); err != nil || !cut || id == "" {
		return p, messages.Fail(messages.CodeBadRequest, fmt.Sprintf("after %q is no place in this list", after), "take it from the header Link of the page before")
	}
	p.id = id
	return p, nil
}

// most is how many entries have to be known, from the beginning of the list, to tell whether there are more: 0 for all.
func (p page) most() int32 {
	if p.limit == 0 || p.id != "" {
		return 0
	}
	return int32(p.limit) + 1 //nolint:gosec // of 30 bits
}

// cut gives the page of a list, and the header that leads to the next one (RFC 8288), if there is one. place tells an entry's time and id.
func cut[T any](p page, r *http.Request, all []T, place func(T) (at int64, id string)) ([]T, map[string]string) {
	if p.id != "" {
		all = keep(all, func(v T) bool {
			at, id := place(v)
			return at < p.at || at == p.at && id > p.id
		})
	}
	if p.limit == 0 || uint64(len(all)) <= p.limit {
		return all, nil
	}
	all = all[:p.limit]
	at, id := place(all[len(all)-1])
	q := r.URL.Query()
	q.Set("after", strconv.FormatInt(at, 10)+"."+id)
	return all, map[string]string{"Link": "<" + r.URL.EscapedPath() + "?" + q.Encode() + `>; rel="next"`}
}
