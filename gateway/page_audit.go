package gateway

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/troupe-dev/troupe/messages"
)

// auditPage is a part of an audit: the newest entries, or those before a place in its order, which is that of time.
type auditPage struct {
	limit   uint64 // 0: all that there are
	at      int64  // of the place
	seq     uint64
	session string
	behind  int  // entries of the same time, cursor and session that stand before it; of damage, all that stands before it
	set     bool // there is a place
}

// backwards reads the part that a request wants.
func backwards(q url.Values) (p auditPage, err error) {
	if p.limit, err = number("limit", q.Get("limit"), 30); err != nil {
		return p, err
	}
	before := q.Get("before")
	if before == "" {
		return p, nil
	}
	parts := strings.SplitN(before, ".", 4)
	p.set = len(parts) == 4
	if p.set {
		var errs [3]error
		p.at, errs[0] = strconv.ParseInt(parts[0], 10, 64)
		p.seq, errs[1] = strconv.ParseUint(parts[1], 10, 64)
		p.behind, errs[2] = strconv.Atoi(parts[2])
		p.session = parts[3]
		p.set = cmp.Or(errs[:]...) == nil
	}
	if !p.set {
		return p, messages.Fail(messages.CodeBadRequest, fmt.Sprintf("before %q is no place in an audit", before), "take it from the header Link of the page before")
	}
	return p, nil
}

// cut leaves the page of a whole audit, and gives the header that leads to the one before it (RFC 8288), if there is one.
func (p auditPage) cut(r *http.Request, l *messages.Audit) map[string]string {
	all := l.GetEntries()
	if p.set {
		same, damaged := 0, 0
		all = keep(all, func(v *messages.AuditView) bool {
			if v.GetKind() == messages.AuditDamage { // pages before those that tell what is damaged do not say it again
				damaged++
				return p.at == math.MaxInt64 && damaged <= p.behind
			}
			order := cmp.Or(cmp.Compare(v.GetAtUnixMs(), p.at), cmp.Compare(v.GetSessionId(), p.session), cmp.Compare(v.GetCursor(), p.seq))
			if order == 0 {
				same++
			}
			return order < 0 || order == 0 && same <= p.behind
		})
	}
	header := map[string]string{}
	if p.limit > 0 && uint64(len(all)) > p.limit {
		from := len(all) - int(p.limit) //nolint:gosec // of 30 bits
		first, at, behind := all[from], all[from].GetAtUnixMs(), 0
		if first.GetKind() == messages.AuditDamage {
			at = math.MaxInt64 // it stands behind all that has a time
		}
		for _, v := range all[:from] {
			if besides(v, first) {
				behind++
			}
		}
		all = all[from:]
		q := r.URL.Query()
		q.Set("before", fmt.Sprintf("%d.%d.%d.%s", at, first.GetCursor(), behind, first.GetSessionId()))
		header["Link"] = "<" + r.URL.EscapedPath() + "?" + q.Encode() + `>; rel="next"`
	}
	l.Entries = all
	return header
}

// besides says whether two entries have one place: they are of the same record, or both are damage.
func besides(v, w *messages.AuditView) bool {
	if v.GetKind() == messages.AuditDamage || w.GetKind() == messages.AuditDamage {
		return v.GetKind() == w.GetKind()
	}
	return v.GetAtUnixMs() == w.GetAtUnixMs() && v.GetSessionId() == w.GetSessionId() && v.GetCursor() == w.GetCursor()
}
