package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/troupe-dev/troupe/tools"
)

// Where a command finds its folders in a container, whatever they are called on the machine.
const (
	insideWorkspace = "/workspace"
	insideHome      = "/home/agent"
	insideTemp      = "/tmp/call"
)

// The engine is asked again until a container is gone, at most for so long.
const (
	removeWait  = 30 * time.Second
	removePause = 50 * time.Millisecond
)

// container runs commands in containers of an image, one each.
type container struct {
	engine string // path of podman or docker
	user   string // who files belong to, where the engine does not see to that
	o      Options
	masks  *masks
	prefix string // of the names of this process's containers

	mu    sync.Mutex
	names map[string]bool // of those that run
}

const containerHint = "install podman (`apt-get install podman`) or start docker, and get the image first, e.g. `podman pull IMAGE`: nothing is fetched on its own"

// engineEnv is what the engine itself needs to know of this process's environment.
var engineEnv = []string{ //nolint:gochecknoglobals // a constant list
	"PATH", "HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "CONTAINER_HOST", "CONTAINERS_CONF",
}

func newContainer(ctx context.Context, o Options) (tools.Sandbox, error) {
	if o.Image == "" {
		return nil, &Unavailable{Container, "no image is named", "set sandbox.image to an image that holds the project's tools"}
	}
	if strings.HasPrefix(o.Image, "-") {
		return nil, &Unavailable{Container, fmt.Sprintf("%q is no image's name", o.Image), "set sandbox.image to an image that holds the project's tools"}
	}
	ownHandles()
	hide(o)
	if err := o.resolve(); err != nil {
		return nil, err
	}
	var problems []error
	for _, name := range []string{"podman", "docker"} {
		path, err := exec.LookPath(name)
		if err != nil {
			problems = append(problems, fmt.Errorf("the program %s is not on PATH", name))
			continue
		}
		c := &container{engine: path, o: o, masks: newMasks(&o), names: map[string]bool{}}
		c.prefix = "troupe-" + strconv.Itoa(os.Getpid()) + "-" + processStart(os.Getpid()) + "-"
		if name == "docker" {
			c.user = strconv.Itoa(os.Getuid()) + ":" + strconv.Itoa(os.Getgid())
		}
		if err := c.ready(ctx); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", name, err))
			continue
		}
		if err := prove(ctx, c, &c.o, Container, true, containerHint); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", name, err))
			continue
		}
		return c, nil
	}
	return nil, &Unavailable{Container, strings.ReplaceAll(errors.Join(problems...).Error(), "\n", "; "), containerHint}
}

// ready looks for the image, and removes what processes that are no more have left.
func (c *container) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	if _, err := c.ask(ctx, "image", "inspect", "--format", "{{.Id}}", c.o.Image); err != nil {
		return fmt.Errorf("the image %s is not there: %w", c.o.Image, err)
	}
	list, err := c.ask(ctx, "ps", "--all", "--filter", "name=troupe-", "--format", "{{.Names}}")
	if err != nil {
		return fmt.Errorf("list containers: %w", err)
	}
	c.forget()
	for name := range strings.FieldsSeq(list) {
		if abandoned(name) {
			if _, err := c.ask(ctx, "rm", "--force", name); err != nil {
				return fmt.Errorf("remove the container %s, which a dead process left: %w", name, err)
			}
		}
	}
	return nil
}

// forget removes the variables of commands, secrets among them, whose process is no more.
func (c *container) forget() {
	files, _ := filepath.Glob(filepath.Join(c.o.CacheDir, "troupe-*-env-*")) // the pattern is well formed
	for _, f := range files {
		if abandoned(filepath.Base(f)) {
			_ = os.Remove(f)
		}
	}
}

// abandoned tells whether the process that named a container, or its file, so is no more.
func abandoned(name string) bool {
	part := strings.Split(name, "-")
	if len(part) < 4 || part[0] != "troupe" {
		return false
	}
	pid, err := strconv.Atoi(part[1])
	return err == nil && processStart(pid) != part[2]
}

// processStart is when a process started, as the kernel counts; "" when it is not there.
func processStart(pid int) string {
	b, err := os.ReadFile(procDir(pid) + "/stat")
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(b), ") ") // the name may hold anything but comes first
	fields := strings.Fields(rest)
	if len(fields) < 20 {
		return ""
	}
	return fields[19]
}

// command is a run of the engine, with nothing of this process's environment that it does not need.
func (c *container) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.engine, args...)
	cmd.Dir, cmd.Env = c.o.CacheDir, []string{} // engines leave notes where they are started
	for _, name := range engineEnv {
		if v, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.WaitDelay = time.Second
	return cmd
}

func (c *container) ask(ctx context.Context, args ...string) (string, error) {
	var out, bad bytes.Buffer
	cmd := c.command(ctx, args...)
	cmd.Stdout, cmd.Stderr = &out, &bad
	if err := cmd.Run(); err != nil {
		said := strings.TrimSpace(bad.String())
		if len(said) > 500 {
			said = "..." + said[len(said)-500:]
		}
		return "", fmt.Errorf("%w: %s", err, said)
	}
	return strings.TrimSpace(out.String()), nil
}

func (c *container) Name() string { return "container" }

func (c *container) options() *Options { return &c.o }

func (c *container) Confines() bool { return true }

func (c *container) describe() string {
	return "image " + c.o.Image + " in " + filepath.Base(c.engine) + ", the workspace at " + insideWorkspace
}

// ContainerID is the name of the container that a call's first command runs in.
func (c *container) ContainerID(exec string) string { return c.prefix + plainName(exec) }

// Inside is where a command finds a path of the machine, and false when it does not.
func (c *container) Inside(workspace, path string) (string, bool) {
	return moved(path, workspace, insideWorkspace)
}

// Outside is the reverse of Inside.
func (c *container) Outside(workspace, path string) (string, bool) {
	return moved(path, insideWorkspace, workspace)
}

// moved is a path below one folder as it is below another.
func moved(path, from, to string) (string, bool) {
	path = filepath.Clean(path)
	if !isBelow(path, from) {
		return "", false
	}
	return filepath.Join(to, strings.TrimPrefix(path, from)), true
}

func plainName(id string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, id)
}

// name takes a name for a command's container. A call may run several.
func (c *container) name(env []string) (name string, release func()) {
	id := "probe"
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "TROUPE_EXEC_ID="); ok {
			id = v
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	name = c.ContainerID(id)
	for n := 2; c.names[name]; n++ {
		name = c.ContainerID(id) + "." + strconv.Itoa(n)
	}
	c.names[name] = true
	return name, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.names, name)
	}
}

func (c *container) Run(ctx context.Context, cmd tools.Command) (tools.Exit, error) {
	if err := ctx.Err(); err != nil {
		return tools.Exit{}, err
	}
	if err := checkWorkspace(cmd.Workspace); err != nil {
		return tools.Exit{}, err
	}
	home, err := c.o.home(cmd.Workspace)
	if err != nil {
		return tools.Exit{}, err
	}
	release, err := c.masks.take(cmd.Workspace)
	if err != nil {
		return tools.Exit{}, err
	}
	defer release()
	name, free := c.name(cmd.Env)
	defer free()
	after := context.WithoutCancel(ctx) // what is to be done when the call is over
	defer c.remove(after, name)
	variables, err := c.variables(&cmd)
	if err != nil {
		return tools.Exit{}, err
	}
	defer os.Remove(variables)
	args, err := c.arguments(&cmd, name, home, variables)
	if err != nil {
		return tools.Exit{}, err
	}
	engine := c.command(after, args...)
	var once sync.Once
	client := newChild(engine)
	j := &job{p: client, out: cmd.Output, max: cmd.MaxOutput, gone: func() {}}
	j.kill = func() { once.Do(func() { c.kill(after, name, client) }) }
	start := time.Now()
	err = j.run(ctx)
	return c.exit(after, j, engine, name, time.Since(start), err)
}

// variables writes the command's environment into a file: in a list of processes everybody would see it.
func (c *container) variables(cmd *tools.Command) (string, error) {
	temp := "/tmp"
	if cmd.Temp != "" {
		temp = insideTemp
	}
	var text strings.Builder
	for _, kv := range environment(cmd.Env, insideHome, temp, nil) {
		name, value, _ := strings.Cut(kv, "=")
		if name == "PATH" {
			continue // the image's own
		}
		if strings.ContainsAny(kv, "\r\n") {
			return "", fmt.Errorf("the variable %s has several lines, which no container engine takes", name)
		}
		if v, ok := c.Inside(cmd.Workspace, value); ok && filepath.IsAbs(value) {
			value = v
		}
		text.WriteString(name + "=" + value + "\n")
	}
	f, err := os.CreateTemp(c.o.CacheDir, c.prefix+"env-")
	if err != nil {
		return "", fmt.Errorf("write the command's variables: %w", err)
	}
	_, err = f.WriteString(text.String())
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(f.Name())
		return "", fmt.Errorf("write the command's variables: %w", err)
	}
	return f.Name(), nil
}

// inContainer starts a command below a shell, which is the first process: it gives it its limits,
// tells how it ended, and does without bash where there is none.
const inContainer = `ulimit -c 0; ulimit -f %d 2>/dev/null
if [ "$1" = /bin/bash ] && ! [ -x /bin/bash ]; then shift; set -- /bin/sh "$@"; fi
"$@"
exit $?`

func (c *container) arguments(cmd *tools.Command, name, home, variables string) ([]string, error) {
	l := c.o.Limits
	args := []string{
		"run", "--name", name, "--pull", "never", "--log-driver", "none", "--hostname", "sandbox", "--read-only",
		"--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--env-file", variables,
		"--pids-limit", strconv.Itoa(threadsPerProcess * l.Processes), "--memory", strconv.FormatInt(l.Memory, 10),
		"--ulimit", fmt.Sprintf("nofile=%d:%d", l.Files, l.Files), "--ulimit", "nproc=" + strconv.Itoa(8*l.Processes),
		"--tmpfs", "/tmp:rw,mode=1777,size=" + strconv.FormatInt(l.Scratch, 10),
	}
	if l.CPUs > 0 {
		args = append(args, "--cpus", strconv.Itoa(l.CPUs))
	}
	if c.user != "" {
		args = append(args, "--user", c.user)
	}
	if !cmd.Network {
		args = append(args, "--network", "none")
	}
	bind := func(from, to string, readOnly bool) error {
		if strings.ContainsAny(from, ",:\"\n") {
			return fmt.Errorf("the folder %q cannot be shown in a container: its name has a sign that engines read otherwise", from)
		}
		mount := "type=bind,source=" + from + ",destination=" + to
		if readOnly {
			mount += ",readonly"
		}
		args = append(args, "--mount", mount)
		return nil
	}
	err := errors.Join(bind(cmd.Workspace, insideWorkspace, cmd.ReadOnly), bind(home, insideHome, cmd.ReadOnly))
	if cmd.Temp != "" {
		err = errors.Join(err, bind(cmd.Temp, insideTemp, false))
	}
	if err != nil {
		return nil, err
	}
	for _, hidden := range append([]string{filepath.Join(cmd.Workspace, troupeFolder)}, c.o.Hide...) {
		if in, ok := c.Inside(cmd.Workspace, hidden); ok && hidden != cmd.Workspace && existing(hidden) != "" {
			args = append(args, "--mount", "type=tmpfs,destination="+in+",tmpfs-mode=0700,tmpfs-size=65536")
		}
	}
	dir := cmd.Workspace
	if cmd.Dir != "" {
		dir = cmd.Dir
	}
	in, ok := c.Inside(cmd.Workspace, dir)
	if !ok {
		return nil, fmt.Errorf("the folder %s is not in the container: it lies outside of the workspace", dir)
	}
	args = append(args, "--workdir", in, "--entrypoint", "/bin/sh", c.o.Image, "-c", fmt.Sprintf(inContainer, l.FileSize/512), "sh")
	argv := slices.Clone(cmd.Argv)
	for i, a := range argv {
		if v, ok := c.Inside(cmd.Workspace, a); ok && filepath.IsAbs(a) {
			argv[i] = v
		}
	}
	return append(args, argv...), nil
}

// kill ends a container's processes. It may have none yet: then the engine is about to start it.
func (c *container) kill(ctx context.Context, name string, client *child) {
	for deadline := time.Now().Add(removeWait); time.Now().Before(deadline); {
		select {
		case <-client.ended:
			return
		case <-time.After(removePause):
		}
		asking, cancel := context.WithTimeout(ctx, removeWait)
		_, err := c.ask(asking, "kill", "--signal", "KILL", name)
		cancel()
		if err == nil {
			return // the client ends with it
		}
	}
	_ = client.cmd.Process.Kill() // what it leaves is removed
}

// remove ends a container and everything in it, and returns when it is gone.
func (c *container) remove(ctx context.Context, name string) {
	for deadline := time.Now().Add(removeWait); ; {
		asking, cancel := context.WithTimeout(ctx, removeWait)
		_, err := c.ask(asking, "rm", "--force", "--volumes", name)
		cancel()
		if err == nil || time.Now().After(deadline) || strings.Contains(strings.ToLower(err.Error()), "no such container") {
			return
		}
		<-time.After(removePause) // the engine tells nobody when it has come to its senses
	}
}

// exit says how the command ended, which the engine knows for as long as the container is there.
func (c *container) exit(ctx context.Context, j *job, engine *exec.Cmd, name string, took time.Duration, err error) (tools.Exit, error) {
	e := tools.Exit{Limit: j.exceeded(), Bounds: string(Container), Duration: took}
	if err != nil || e.Limit != "" {
		e.Code, e.Signal = 128+int(unix.SIGKILL), "SIGKILL"
		return e, err
	}
	if engine.ProcessState == nil {
		return e, fmt.Errorf("run %s: %w", c.engine, errAborted)
	}
	e.Code = engine.ProcessState.ExitCode()
	if e.Code < 0 {
		return e, fmt.Errorf("run %s: %w (%s)", c.engine, errAborted, engine.ProcessState)
	}
	if e.Code == 125 || e.Code == 137 { // its own failure, or the command's: the container tells
		ctx, cancel := context.WithTimeout(ctx, removeWait)
		defer cancel()
		said, aerr := c.ask(ctx, "container", "inspect", "--format", "{{.State.Status}} {{.State.OOMKilled}}", name)
		switch {
		case e.Code == 125 && (aerr != nil || !strings.HasPrefix(said, "exited")):
			return e, fmt.Errorf("run %s: %w: it could not start the container", c.engine, errAborted)
		case strings.HasSuffix(said, "true"):
			e.Limit = "memory"
		}
	}
	if e.Code > 128 && e.Code < 128+32 {
		e.Signal = unix.SignalName(unix.Signal(e.Code - 128))
	}
	return e, nil
}
