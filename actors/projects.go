package actors

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/tools"
	"github.com/troupe-dev/troupe/workspace"
)

// Projects are the store's, below `prj/`: they are replaced, not journaled, so that a value that was taken back is gone. In an
// encrypted store they are encrypted as everything is.

// ProjectKey is where a project is kept.
func ProjectKey(id string) string { return "prj/" + id }

// projectsStream is claimed by whoever changes a project: there is one at a time.
const projectsStream = "sys/projects"

// Bounds of a project.
const (
	maxVariables = 200
	maxValue     = 32 << 10  // bytes
	maxValues    = 768 << 10 // bytes of all its names, values and commands: what commands are given, and the store takes at once
)

// learner is a Redactor that can be told of further secrets: for good, or for as long as there are not too many newer ones.
type learner interface {
	LearnValues(values ...string)
	LearnPassing(values ...string)
}

// ReadProjects lists the projects with their values, in the order of their names.
func ReadProjects(ctx context.Context, store persistence.Store) ([]*messages.Project, error) {
	var out []*messages.Project
	err := store.Index(ctx, ProjectKey(""), func(key string, value []byte) error {
		p := &messages.Project{}
		if err := proto.Unmarshal(value, p); err != nil {
			return fmt.Errorf("decode project %s: %w", key, err)
		}
		out = append(out, p)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the projects: %w", err)
	}
	slices.SortFunc(out, func(a, b *messages.Project) int { return strings.Compare(a.GetName(), b.GetName()) })
	return out, nil
}

// FindProject finds a project by its id or name, nil when there is none.
func FindProject(all []*messages.Project, word string) *messages.Project {
	i := slices.IndexFunc(all, func(p *messages.Project) bool { return p.GetId() == word || p.GetName() == word })
	if i < 0 {
		return nil
	}
	return all[i]
}

// projectAt finds the project of a folder.
func projectAt(all []*messages.Project, path string) *messages.Project {
	i := slices.IndexFunc(all, func(p *messages.Project) bool { return p.GetPath() == path })
	if i < 0 {
		return nil
	}
	return all[i]
}

// Shown is a project as people are told of it: without the values of secrets.
func Shown(p *messages.Project) *messages.Project {
	out := proto.CloneOf(p)
	for _, v := range out.GetVariables() {
		if v.GetSecret() {
			v.Value = ""
		}
	}
	return out
}

// NoProject is the refusal of an unknown project.
func NoProject(word string) *messages.Failure {
	return messages.Fail(messages.CodeNotFound, fmt.Sprintf("there is no project %q", word), "`troupe project ls` lists them")
}

// SaveProject makes a project of a folder, or renames that of the folder.
func (s *Services) SaveProject(ctx context.Context, m *messages.SaveProject) (*messages.Project, error) {
	if !filepath.IsAbs(m.GetPath()) {
		return nil, messages.Fail(messages.CodeBadRequest, fmt.Sprintf("%q is no absolute path", m.GetPath()), "")
	}
	_, path, err := workspace.Local(m.GetPath())
	if err != nil {
		return nil, messages.Fail(messages.CodeBadRequest, err.Error(), "name a folder that exists")
	}
	all, err := ReadProjects(ctx, s.Store)
	if err != nil {
		return nil, err
	}
	p := projectAt(all, path)
	if p == nil {
		p = &messages.Project{Id: messages.NewID(messages.ProjectPrefix), Path: path}
	}
	name := cmp.Or(m.GetName(), p.GetName())
	if name == "" {
		if name, err = freeName(all, path); err != nil {
			return nil, err
		}
	}
	if !validName(name) || strings.HasPrefix(name, messages.ProjectPrefix) {
		return nil, messages.Fail(messages.CodeBadRequest, fmt.Sprintf("%q is no name for a project", name),
			fmt.Sprintf("up to %d letters, digits, dots, dashes and underscores, a letter or digit first", maxName))
	}
	if other := FindProject(all, name); other != nil && other.GetId() != p.GetId() {
		return nil, messages.Fail(messages.CodeAlreadyExists, fmt.Sprintf("project %s is that of %s", name, other.GetPath()), "give it another name")
	}
	p.Name = name
	return Shown(p), s.putProject(ctx, p)
}

// freeName names a project like its folder.
func freeName(all []*messages.Project, path string) (string, error) {
	var have []*messages.WorkspaceAttached
	for _, p := range all {
		have = append(have, &messages.WorkspaceAttached{Name: p.GetName()})
	}
	name, fail := nameFor("", &messages.WorkspaceAttached{Path: path}, have)
	if fail != nil {
		return "", fail
	}
	return name, nil
}

// RemoveProject forgets a project.
func (s *Services) RemoveProject(ctx context.Context, m *messages.RemoveProject) (*messages.Project, error) {
	all, err := ReadProjects(ctx, s.Store)
	if err != nil {
		return nil, err
	}
	p := FindProject(all, m.GetProject())
	if p == nil {
		return nil, NoProject(m.GetProject())
	}
	return p, s.changeProjects(ctx, persistence.IndexOp{Key: ProjectKey(p.GetId()), Delete: true})
}

// SetVariables changes the variables of a project.
func (s *Services) SetVariables(ctx context.Context, m *messages.SetVariables) (*messages.Project, error) {
	all, err := ReadProjects(ctx, s.Store)
	if err != nil {
		return nil, err
	}
	p := FindProject(all, m.GetProject())
	if p == nil {
		return nil, NoProject(m.GetProject())
	}
	drop := func(name string) bool {
		before := len(p.GetVariables())
		p.Variables = slices.DeleteFunc(p.GetVariables(), func(v *messages.Variable) bool { return v.GetName() == name })
		return len(p.GetVariables()) < before
	}
	for _, name := range m.GetUnset() {
		if !drop(name) {
			return nil, messages.Fail(messages.CodeNotFound, fmt.Sprintf("project %s has no variable %s", p.GetName(), name), "`troupe env ls` lists them")
		}
	}
	for _, v := range m.GetSet() {
		if fail := s.checkVariable(v); fail != nil {
			return nil, fail
		}
		drop(v.GetName())
		p.Variables = append(p.Variables, v)
	}
	if len(p.GetVariables()) > maxVariables {
		return nil, messages.Fail(messages.CodeBadRequest, fmt.Sprintf("a project has at most %d variables", maxVariables), "")
	}
	if n := sizeOf(p); len(m.GetSet()) > 0 && n > maxValues {
		return nil, messages.Fail(messages.CodeTooLarge, fmt.Sprintf("the variables of project %s would be %d bytes; all of them together may be %d", p.GetName(), n, maxValues),
			"take some away with `troupe env unset`, or put long values into a file of the folder")
	}
	slices.SortFunc(p.Variables, func(a, b *messages.Variable) int { return strings.Compare(a.GetName(), b.GetName()) })
	s.learn(p)
	return Shown(p), s.putProject(ctx, p)
}

func sizeOf(p *messages.Project) int {
	n := 0
	for _, v := range p.GetVariables() {
		n += len(v.GetName()) + len(v.GetValue()) + len(v.GetCommand())
	}
	return n
}

// checkVariable refuses what no command may be given, whatever its folder's trust, and a secret that could not be kept one.
func (s *Services) checkVariable(v *messages.Variable) *messages.Failure {
	if err := tools.CheckVariable(v.GetName(), v.GetValue(), messages.Trust_RESTRICTED); err != nil {
		if tools.CheckVariable(v.GetName(), v.GetValue(), messages.Trust_FULL) == nil { // the runtime keeps no trust for a project
			return messages.Fail(messages.CodeBadRequest, fmt.Sprintf("the variable %s changes which programs run, or how: no project may set it", v.GetName()),
				"name it in env.inherit of the configuration: commands in trusted folders have it as troupe itself has it")
		}
		return messages.Fail(messages.CodeBadRequest, asToolError(err).Message, "")
	}
	if !utf8.ValidString(v.GetValue()) {
		return messages.Fail(messages.CodeBadRequest, fmt.Sprintf("the value of %s is not UTF-8", v.GetName()), "encode it, for instance with base64")
	}
	if v.GetCommand() != "" {
		return checkProvider(v)
	}
	if len(v.GetValue()) > maxValue {
		return messages.Fail(messages.CodeTooLarge, fmt.Sprintf("the value of %s is larger than %d bytes", v.GetName(), maxValue), "")
	}
	if !v.GetSecret() {
		return nil
	}
	if l, ok := s.Redact.(learner); ok {
		l.LearnValues(v.GetValue())
	}
	if s.Redact.String(v.GetValue()) == v.GetValue() {
		return messages.Fail(messages.CodeBadRequest, fmt.Sprintf("the value of %s is too short, or too much of a word, to be taken out of texts", v.GetName()),
			"secrets have 8 bytes at least; one of small letters alone 16")
	}
	return nil
}

// learn tells the redactor of a project's secrets, before a command has them.
func (s *Services) learn(p *messages.Project) {
	l, ok := s.Redact.(learner)
	for _, v := range p.GetVariables() {
		if v.GetSecret() && ok {
			l.LearnValues(v.GetValue())
		}
	}
}

func (s *Services) putProject(ctx context.Context, p *messages.Project) error {
	value, err := proto.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode project %s: %w", p.GetName(), err)
	}
	return s.changeProjects(ctx, persistence.IndexOp{Key: ProjectKey(p.GetId()), Value: value})
}

func (s *Services) changeProjects(ctx context.Context, op persistence.IndexOp) error {
	j, err := persistence.OpenJournal(ctx, s.Store, projectsStream, "", s.Node)
	if err != nil {
		return err
	}
	defer j.Release()
	_, err = appendAndWait(s, persistence.Part{Journal: j, Draft: persistence.Draft{Index: []persistence.IndexOp{op}}})
	return err
}

// belongs finds the project that a new session belongs to: the one that it names, else that of its folder. Projects are the
// default tenant's: the variables of a folder are nobody else's.
func (s *Services) belongs(tenant, id, folder string) (*messages.Project, *messages.Failure) {
	if tenant != "" {
		if id != "" {
			return nil, NoProject(id)
		}
		return nil, nil
	}
	all, err := ReadProjects(context.Background(), s.Store)
	if err != nil {
		return nil, messages.Fail(messages.CodeUnavailable, err.Error(), "try again")
	}
	if id == "" {
		return projectAt(all, folder), nil
	}
	if p := FindProject(all, id); p != nil {
		return p, nil
	}
	return nil, NoProject(id)
}

// projectEnv is what the project of a session gives to its commands; nothing when it is no more.
func (s *Services) projectEnv(id string) ([]*messages.EnvVar, error) {
	if id == "" {
		return nil, nil
	}
	p := &messages.Project{}
	err := s.Store.Index(context.Background(), ProjectKey(id), func(key string, value []byte) error {
		if key != ProjectKey(id) {
			return nil
		}
		return proto.Unmarshal(value, p)
	})
	if err != nil {
		return nil, fmt.Errorf("read project %s: %w", id, err)
	}
	s.learn(p)
	var out []*messages.EnvVar
	for _, v := range p.GetVariables() {
		out = append(out, &messages.EnvVar{Name: v.GetName(), Value: v.GetValue(), Command: v.GetCommand()})
	}
	return out, nil
}

// takeVariables gives the workers a grant with the project's variables as they are now, if it is the session's project that has changed.
func (s *Session) takeVariables(c actor.Context, m *messages.TakeVariables) {
	project := s.facts.created.GetProjectId()
	if project == "" || project != m.GetProjectId() {
		s.answer(c, &messages.Ack{})
		return
	}
	s.change(c, c.Sender(), func() (proto.Message, string, *messages.Failure) {
		return &messages.VariablesChanged{ProjectId: project}, "", nil
	})
}
