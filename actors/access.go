package actors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
)

// Tokens are the store's, below `tok/`, as projects are: what counts is replaced. A token that was
// revoked stays, so that it is known for good that there were tokens.

// TokenKey is where a token is kept.
func TokenKey(name string) string { return "tok/" + name }

// accessStream is claimed by whoever changes tokens: there is one at a time.
const accessStream = "sys/access"

// ReadTokens lists the tokens, by name.
func ReadTokens(ctx context.Context, store persistence.Store) ([]*messages.Token, error) {
	var out []*messages.Token
	err := store.Index(ctx, TokenKey(""), func(key string, value []byte) error {
		t := &messages.Token{}
		if err := proto.Unmarshal(value, t); err != nil {
			return fmt.Errorf("decode token %s: %w", key, err)
		}
		out = append(out, t)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the tokens: %w", err)
	}
	return out, nil
}

// PutToken makes a token durable.
func (s *Services) PutToken(ctx context.Context, t *messages.Token) error {
	return s.changeAccess(ctx, TokenKey(t.GetName()), t)
}

func (s *Services) changeAccess(ctx context.Context, key string, m proto.Message) error {
	value, err := proto.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode %s: %w", key, err)
	}
	j, err := persistence.OpenJournal(ctx, s.Store, accessStream, "", s.Node)
	if err != nil {
		return err
	}
	defer j.Release()
	_, err = appendAndWait(s, persistence.Part{Journal: j, Draft: persistence.Draft{Index: []persistence.IndexOp{{Key: key, Value: value}}}})
	return err
}

// errEnough ends a read.
var errEnough = errors.New("enough")

// TenantOf is whose a session is, also one that was closed.
func TenantOf(ctx context.Context, store persistence.Store, session string) (tenant string, found bool, err error) {
	if !messages.ValidID(messages.SessionPrefix, session) {
		return "", false, nil
	}
	err = store.Read(ctx, messages.SessionStream(session), 1, func(e persistence.Entry) error {
		fact, err := messages.SessionFactIn(e.Record)
		if err != nil {
			return fmt.Errorf("%w: %w", persistence.ErrCorrupt, err)
		}
		if c, ok := fact.(*messages.SessionCreated); ok {
			tenant, found = c.GetTenant(), true
		}
		return errEnough
	})
	if err != nil && !errors.Is(err, errEnough) {
		return "", false, fmt.Errorf("read whose session %s is: %w", session, err)
	}
	return tenant, found, nil
}

// WhoseIs finds the session of an id, for who asks. What does not exist and what is another's are told alike.
func (s *Services) WhoseIs(ctx context.Context, m *messages.WhoseIs) (*messages.Belongs, error) {
	if strings.HasPrefix(m.GetId(), messages.RulePrefix) { // it outlives its session
		return s.whoseRule(ctx, m)
	}
	session, err := s.sessionOf(ctx, m.GetId())
	if err != nil {
		return nil, err
	}
	tenant, found, err := TenantOf(ctx, s.Store, session)
	switch {
	case damaged(err) && m.GetAny(): // it is there
	case damaged(err): // whose it is cannot be read: who is bound to a tenant does not see it, and sees the others
		s.Log.Warn("it cannot be told whose a session is", "session", session, "err", err)
		return nil, unknown(m.GetId())
	case err != nil:
		return nil, err
	case !found || tenant != m.GetTenant() && !m.GetAny():
		return nil, unknown(m.GetId())
	}
	return &messages.Belongs{SessionId: session}, nil
}

func (s *Services) whoseRule(ctx context.Context, m *messages.WhoseIs) (*messages.Belongs, error) {
	rules, err := RememberedBy(ctx, s.Store, "")
	if err != nil {
		return nil, err
	}
	rules = append(rules, s.Standing()...)
	i := slices.IndexFunc(rules, func(v *messages.RuleView) bool { return v.GetRuleId() == m.GetId() })
	if i < 0 || rules[i].GetTenant() != m.GetTenant() && !m.GetAny() {
		return nil, unknown(m.GetId())
	}
	return &messages.Belongs{SessionId: rules[i].GetSessionId()}, nil
}

func unknown(id string) *messages.Failure {
	if prefix, _, _ := strings.Cut(id, "_"); prefix+"_" == messages.SessionPrefix {
		return NoSession(id)
	}
	return messages.Fail(messages.CodeNotFound, "there is nothing of the id "+id, "")
}

// sessionOf is the session that something belongs to; "" when there is none.
func (s *Services) sessionOf(ctx context.Context, id string) (string, error) {
	switch prefix, _, _ := strings.Cut(id, "_"); prefix + "_" {
	case messages.SessionPrefix:
		return id, nil
	case messages.ApprovalPrefix:
		return s.indexed(ctx, "apr/", AnsweredKey(id, ""), id)
	case messages.RunPrefix:
		return s.ofRun(ctx, id)
	case messages.ExecPrefix:
		return s.indexed(ctx, strings.TrimSuffix(DoubtKey("", ""), "/"), ResolvedKey(id, ""), id)
	}
	return "", nil
}

// ofRun is the session of a run that is listed.
func (s *Services) ofRun(ctx context.Context, id string) (session string, err error) {
	err = s.Store.Index(ctx, RunKey(id), func(key string, value []byte) error {
		if key != RunKey(id) {
			return nil
		}
		v := &messages.RunView{}
		if err := proto.Unmarshal(value, v); err != nil {
			return fmt.Errorf("decode listing entry %s: %w", key, err)
		}
		session = v.GetSessionId()
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("find the session of run %s: %w", id, err)
	}
	return session, nil
}

// indexed finds the session of something that waits, below open as OPEN/SESSION/ID, or was settled, below settled as .../SESSION.
func (s *Services) indexed(ctx context.Context, open, settled, id string) (session string, err error) {
	err = s.Store.Index(ctx, open, func(key string, _ []byte) error {
		if rest, ok := strings.CutSuffix(key, "/"+id); ok {
			session = rest[strings.LastIndexByte(rest, '/')+1:]
			return errEnough
		}
		return nil
	})
	if session == "" && err == nil {
		err = s.Store.Index(ctx, settled, func(key string, _ []byte) error {
			session = strings.TrimPrefix(key, settled)
			return errEnough
		})
	}
	if err != nil && !errors.Is(err, errEnough) {
		return "", fmt.Errorf("find the session of %s: %w", id, err)
	}
	return session, nil
}

// bounded refuses a folder that who asks may not attach. path has its links resolved; whether there is such a folder is not told.
func bounded(b *messages.PathBounds, path string) bool {
	return b == nil || slices.ContainsFunc(b.GetRoots(), func(root string) bool { return within(path, root) })
}

func outside(path string) *messages.Failure {
	return messages.Fail(messages.CodeForbidden, fmt.Sprintf("folder %s is not below a root of this server, or is not there", path), "server.roots names the folders below which workspaces may be attached; scope admin is not bound to them")
}
