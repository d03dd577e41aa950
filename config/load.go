package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// SystemFile is the configuration of all users of a machine.
const SystemFile = "/etc/troupe/config.yaml"

// ProjectFile is the configuration of a folder, below it.
const ProjectFile = ".troupe/config.yaml"

// Flag is a setting given on the command line.
type Flag struct {
	Path  string // dotted, for example data.dir
	Value string
	Name  string // as the user wrote it, for example --data
}

// Options say where a configuration comes from. The zero value gives the defaults alone, with
// the system's file.
type Options struct {
	Env     Env
	Known   []string // TROUPE_ variables that are no settings but somebody else's business
	Dir     string   // the folder at work, absolute; "" for none
	Trusted bool     // its owner trusts Dir
	File    string   // --config: this file, which must exist, instead of the system's, the user's and the folder's
	Flags   []Flag
	Cwd     string // where relative paths of flags and variables begin; absolute
	System  string // instead of SystemFile, for tests; "-" for none
}

// Loaded is a configuration with what is known about it.
type Loaded struct {
	Config   *Config
	Dirs     Folders
	Files    []string // that were read
	Warnings []Warning

	settings []Setting
	env      Env
}

// Settings gives every value in force with its origin, in the order of the documentation.
func (l *Loaded) Settings() []Setting { return l.settings }

// Origin says where the value at a dotted path came from.
func (l *Loaded) Origin(path string) Origin { return l.setting(path).Origin }

func (l *Loaded) setting(path string) Setting {
	for _, s := range l.settings {
		if s.Path == path {
			return s
		}
	}
	return Setting{}
}

// Load reads, merges and validates. Its error is Problems: all of them, not the first. A folder's
// file may only set what confine lets through; the rest becomes warnings.
func Load(o Options) (*Loaded, error) {
	root := describe()
	r := &reader{root: root, out: &Loaded{Dirs: Dirs(o.Env), env: o.Env}}
	r.files(o)
	openai, problems := decodeOpenAI(o.Env, root)
	r.add(openai, problems)
	env, problems, warnings := decodeEnv(o.Env, o.Known, o.Cwd, root, r.layers)
	r.out.Warnings = append(r.out.Warnings, warnings...)
	r.add(env, problems)
	r.add(decodeFlags(o.Flags, o.Cwd, root))
	if err := r.problems.err(); err != nil {
		return nil, err
	}
	cfg, settings, problems := merge(r.layers, root, r.out.Dirs.Home)
	if err := problems.err(); err != nil {
		return nil, err
	}
	r.out.Config, r.out.settings = cfg, settings
	r.out.fill()
	return r.out, nil
}

// fill gives the defaults that depend on the machine or on other settings.
func (l *Loaded) fill() {
	l.fillText("data.dir", &l.Config.Data.Dir, l.Dirs.Data)
	if p, ok := l.Config.Providers["openai"]; ok && p.BaseURL == "" {
		p.BaseURL = "https://api.openai.com/v1"
		l.Config.Providers["openai"] = p
		l.fillText("providers.openai.base_url", new(string), p.BaseURL)
	}
}

func (l *Loaded) fillText(path string, into *string, value string) {
	if *into != "" {
		return
	}
	*into = value
	for i := range l.settings {
		if l.settings[i].Path == path {
			l.settings[i].Value = value
		}
	}
}

// reader collects layers and problems.
type reader struct {
	root     *shape
	layers   []*layer
	problems Problems
	out      *Loaded
}

func (r *reader) add(l *layer, problems Problems) {
	r.layers = append(r.layers, l)
	r.problems = append(r.problems, problems...)
}

func (r *reader) files(o Options) {
	if o.File != "" {
		if !filepath.IsAbs(o.File) {
			o.File = filepath.Join(o.Cwd, o.File)
		}
		r.file(FromUser, o.File, openRegular, true)
		return
	}
	if o.System == "" {
		o.System = SystemFile
	}
	if o.System != "-" {
		r.file(FromSystem, o.System, openRegular, false)
	}
	r.file(FromUser, filepath.Join(r.out.Dirs.Config, "config.yaml"), openRegular, false)
	if o.Dir == "" {
		return
	}
	lower := r.layers
	r.file(FromProject, filepath.Join(o.Dir, filepath.FromSlash(ProjectFile)), openBelow(o.Dir), false)
	if len(r.layers) > len(lower) {
		project := r.layers[len(r.layers)-1]
		r.out.Warnings = append(r.out.Warnings, confine(project, lower, r.root, o.Dir, o.Trusted)...)
	}
}

// file reads one file as the next layer. One that does not exist is none, unless it must.
func (r *reader) file(source Source, name string, open func(string) (*os.File, error), must bool) {
	src, err := read(name, open)
	if errors.Is(err, fs.ErrNotExist) && !must {
		return
	}
	if err != nil {
		fix := "make it readable or remove it"
		if errors.Is(err, fs.ErrNotExist) {
			fix = "create it with: troupe config init " + shellQuote(name)
		}
		r.problems = append(r.problems, &Problem{What: "read configuration: " + reason(err), Origin: Origin{Source: source, File: name}, Fix: fix})
		return
	}
	r.out.Files = append(r.out.Files, name)
	r.add(decodeFile(source, name, src, r.root, r.layers))
}

// reason is an error without the path that the caller names anyway.
func reason(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}

// read reads a regular file up to a byte more than may be.
func read(name string, open func(string) (*os.File, error)) ([]byte, error) {
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("inspect %s: %w", name, err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is no regular file")
	}
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}

// openRegular opens without waiting: a FIFO in the place of a file would hang every command.
func openRegular(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// openBelow opens a folder's file without following links out of the folder: the excerpt of an
// error would else show somebody another file of theirs.
func openBelow(dir string) func(string) (*os.File, error) {
	return func(string) (*os.File, error) {
		root, err := os.OpenRoot(dir)
		if err != nil {
			return nil, err
		}
		defer root.Close()
		return root.OpenFile(ProjectFile, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	}
}

// decodeFlags makes a layer of the flags.
func decodeFlags(flags []Flag, cwd string, root *shape) (*layer, Problems) {
	l := newLayer(FromFlag)
	var problems Problems
	for _, f := range flags {
		origin := Origin{Source: FromFlag, Name: f.Name}
		s := at(root, f.Path)
		if s == nil {
			problems = append(problems, &Problem{What: fmt.Sprintf("no setting is called %q", f.Path), Origin: origin})
			continue
		}
		set, problem := outside(s, f.Path, f.Value, cwd, origin)
		if problem != nil {
			problems = append(problems, problem)
			continue
		}
		l.settings[f.Path] = set
	}
	return l, problems
}
