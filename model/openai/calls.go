package openai

import (
	"crypto/rand"
	"encoding/json"
	"strconv"
)

// toolCall is one call of the answer under way.
type toolCall struct {
	id, name  string
	sentAs    int    // the provider's index, -1 when it gave none
	held      []byte // arguments that came before the name
	raw       []byte // all arguments, kept where the provider gives no index
	announced bool   // its id and name went on
	goesBy    string // the id that went on
}

// callTable gives the calls of one answer dense positions, whatever the provider does with
// indexes and ids: no index at all, 0 for every call, gaps, ids repeated or missing.
type callTable struct {
	list []toolCall
}

// at finds the call that the provider's index means now: the last one, when an index was
// given to several calls.
func (t *callTable) at(sentAs int) int {
	for i := len(t.list) - 1; i >= 0; i-- {
		if t.list[i].sentAs == sentAs {
			return i
		}
	}
	return -1
}

// resolve returns the position of the call that a piece belongs to, which may be a new one.
// nth is the piece's place in its event.
func (t *callTable) resolve(p *callPiece, nth int) int {
	if p.sentAs >= 0 {
		i := t.at(p.sentAs)
		if i >= 0 && (p.id == "" || p.id == t.list[i].id) && !t.renamed(i, p) {
			return i
		}
		return t.open(p)
	}
	last := len(t.list) - 1
	if last < 0 || nth > 0 {
		return t.open(p)
	}
	cur := &t.list[last]
	switch {
	case p.id != "" && p.id != cur.id:
		return t.open(p)
	case p.name != "" && p.id == "" && cur.name != "":
		return t.open(p)
	case p.name != "" && p.args != "" && json.Valid(cur.raw): // an id said twice
		return t.open(p)
	}
	return last
}

// renamed tells that a piece without an id begins another call under the same index.
func (t *callTable) renamed(i int, p *callPiece) bool {
	return p.id == "" && p.name != "" && t.list[i].name != "" && p.name != t.list[i].name
}

func (t *callTable) open(p *callPiece) int {
	t.list = append(t.list, toolCall{id: p.id, sentAs: p.sentAs})
	return len(t.list) - 1
}

// announce returns the id to go on with: the provider's, made unique within the answer, because
// the next request has to say which result answers which call.
func (t *callTable) announce(i int) string {
	c := &t.list[i]
	c.announced = true
	if c.id == "" {
		c.goesBy = "call_" + rand.Text()
		return c.goesBy
	}
	id := c.id
	for n := 2; t.taken(id); n++ {
		id = c.id + "_" + strconv.Itoa(n)
	}
	c.goesBy = id
	return id
}

func (t *callTable) taken(id string) bool {
	for i := range t.list {
		if t.list[i].goesBy == id {
			return true
		}
	}
	return false
}

// nameless returns the position of a call that never got a name, or -1.
func (t *callTable) nameless() int {
	for i := range t.list {
		if !t.list[i].announced {
			return i
		}
	}
	return -1
}
