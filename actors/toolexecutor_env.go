package actors

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/actors/act"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/tools"
)

// A variable may come from a provider: a command of the project, or a function of the program. It is asked for each call anew, right before the
// call runs. What it gives is a secret: the redactor knows it before the call does, and nobody writes it down.

const (
	maxProvider   = 4 << 10      // bytes of a provider's command
	maxProvided   = maxValue + 2 // bytes that it may print, with the line's end
	providerShell = "/bin/sh"
)

// checkProvider refuses what cannot be the command of a variable.
func checkProvider(v *messages.Variable) *messages.Failure {
	switch {
	case v.GetValue() != "" || v.GetSecret():
		return messages.Fail(messages.CodeBadRequest, fmt.Sprintf("variable %s has a command and a value", v.GetName()), "give either; what a command prints is a secret")
	case len(v.GetCommand()) > maxProvider:
		return messages.Fail(messages.CodeTooLarge, fmt.Sprintf("the command of variable %s is larger than %d bytes", v.GetName(), maxProvider), "write a script, and call that")
	case strings.ContainsRune(v.GetCommand(), 0):
		return messages.Fail(messages.CodeBadRequest, fmt.Sprintf("the command of variable %s holds a NUL", v.GetName()), "")
	}
	return nil
}

// environment gives the call its variables.
func (r *run) environment(ctx context.Context, tc *tools.Context, spec *tools.Spec) error {
	fixed := slices.DeleteFunc(slices.Clone(r.m.GetEnv()), func(v *messages.EnvVar) bool { return v.GetCommand() != "" })
	env, err := r.svc.Env(r.m.GetWorkspace().GetId(), fixed, tc.Trust)
	if err != nil {
		return tools.Errorf(tools.CodeInvalidArguments, "environment: %v", err)
	}
	tc.ProcessEnv = env
	if !r.provides(spec) {
		return nil
	}
	vars, err := r.provided(ctx, tc)
	if err != nil || len(vars) == 0 {
		return err
	}
	if tc.ProcessEnv, err = tools.MergeEnv(env, vars, messages.Trust_RESTRICTED); err != nil {
		return err
	}
	return nil
}

// provides says whether the call is one that providers are asked for: it runs, and has a use for variables.
func (r *run) provides(spec *tools.Spec) bool {
	runs := !r.m.GetPreview() && !r.m.GetPrepare() && !r.m.GetReconcile()
	return runs && (spec.Commands || !spec.NoTemp)
}

func (r *run) provided(ctx context.Context, tc *tools.Context) (out []*messages.EnvVar, err error) {
	for _, v := range r.m.GetEnv() {
		if v.GetCommand() == "" || tc.Workspace == nil {
			continue
		}
		value, err := r.printed(ctx, tc, v)
		if err != nil {
			return nil, err
		}
		out = append(out, &messages.EnvVar{Name: v.GetName(), Value: value})
	}
	if r.svc.Variables != nil {
		more, err := r.computed(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	return out, r.conceal(out)
}

// printed is what the command of a variable prints. What it says besides is of no use to an agent, and may be secret.
func (r *run) printed(ctx context.Context, tc *tools.Context, v *messages.EnvVar) (string, error) {
	switch {
	case tc.Sandbox == nil:
		return "", tools.Errorf(tools.CodeSandboxUnavailable, "Not run: the variable %s comes from a command, and there is no sandbox to run that in", v.GetName())
	case tc.Trust != messages.Trust_FULL && !tc.Sandbox.Confines():
		return "", tools.Errorf(tools.CodeSandboxUnavailable, "Not run: the variable %s comes from a command, which the sandbox %q does not confine in this Restricted workspace", v.GetName(), tc.Sandbox.Name())
	}
	if err := tc.Workspace.Ensure(); err != nil {
		return "", tools.Errorf(tools.CodeWorkspaceNotAvailable, "No active project: %v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, r.svc.Limits.Provider)
	defer cancel()
	var text bytes.Buffer
	exit, err := tc.Sandbox.Run(ctx, tools.Command{
		Argv: []string{providerShell, "-c", "exec 2>/dev/null\n" + v.GetCommand()}, Workspace: tc.Workspace.HostDir(), Env: tc.ProcessEnv, ReadOnly: true, MaxOutput: maxProvided, Output: &text,
	})
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "", tools.Errorf(tools.CodeTimeout, "Not run: the command that gives the variable %s took longer than %v", v.GetName(), r.svc.Limits.Provider)
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err != nil:
		return "", tools.Errorf(tools.CodeSandboxUnavailable, "Not run: the command that gives the variable %s could not be run", v.GetName())
	case exit.Code != 0 || exit.Limit != "":
		return "", tools.Errorf(tools.CodeValidationFailed, "Not run: the command that gives the variable %s ended with exit code %d", v.GetName(), exit.Code)
	}
	return strings.TrimSuffix(strings.TrimSuffix(text.String(), "\n"), "\r"), nil
}

// computed is what the program's function gives.
func (r *run) computed(ctx context.Context) (out []*messages.EnvVar, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.svc.Limits.Provider)
	defer cancel()
	type answer struct {
		vars map[string]string
		err  error
	}
	done := make(chan answer, 1)
	r.svc.aside(func() {
		var a answer
		if p := act.Guard(func() {
			a.vars, a.err = r.svc.Variables(ctx, Call{r.m.GetSessionId(), r.m.GetWorkerId(), r.m.GetAgent(), r.m.GetTool(), r.m.GetExecId()})
		}); p != nil {
			r.svc.Log.Error("the function that gives variables panicked", "err", p.Error(), "stack", p.Stack)
			a.err = errors.New("it panicked")
		}
		done <- a
	})
	select {
	case a := <-done:
		if a.err != nil && ctx.Err() == nil {
			return nil, tools.Errorf(tools.CodeValidationFailed, "Not run: the program's variables could not be had: %s", r.svc.Redact.String(a.err.Error()))
		}
		for name, value := range a.vars {
			out = append(out, &messages.EnvVar{Name: name, Value: value})
		}
		slices.SortFunc(out, func(a, b *messages.EnvVar) int { return strings.Compare(a.GetName(), b.GetName()) })
		if a.err == nil {
			return out, nil
		}
	case <-ctx.Done():
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil, tools.Errorf(tools.CodeTimeout, "Not run: the program's variables took longer than %v", r.svc.Limits.Provider)
	}
	return nil, ctx.Err()
}

// conceal has the redactor learn the values before anybody has them. One that it would not find again is refused.
func (r *run) conceal(vars []*messages.EnvVar) error {
	l, _ := r.svc.Redact.(learner)
	for _, v := range vars {
		if len(v.GetValue()) > maxValue {
			return tools.Errorf(tools.CodeValidationFailed, "Not run: the value of the variable %s is larger than %d bytes", v.GetName(), maxValue)
		}
		if v.GetValue() == "" {
			continue
		}
		if l != nil {
			l.LearnPassing(v.GetValue())
		}
		if r.svc.Redact.String(v.GetValue()) == v.GetValue() {
			return tools.Errorf(tools.CodeValidationFailed, "Not run: the value of the variable %s is too short, or too much of a word, to be kept out of texts", v.GetName())
		}
	}
	return nil
}
