package actors

import (
	"fmt"

	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/policy"
	"github.com/troupe-dev/troupe/tools"
)

// standing asks the program for the rules that hold for a folder now. They are read whenever a session comes into
// memory and are no part of it: a rule that was taken back, or added, counts from then on. What cannot be read
// fails the session rather than leave out a rule that denies. Not for a mailbox.
func (s *Services) standing(folder string) ([]string, *messages.Failure) {
	if s.Rules == nil {
		return nil, nil
	}
	rules, err := s.Rules(folder)
	for _, text := range rules {
		if err == nil {
			_, err = policy.ParseRule(text)
		}
	}
	if err != nil {
		return nil, messages.Fail(messages.CodeUnavailable, fmt.Sprintf("read the standing rules: %v", err), "correct the configuration; `troupe config validate` says where")
	}
	return rules, nil
}

// check refuses what a session cannot be made with.
func (b *sessionBuilder) check() *messages.Failure {
	for _, r := range b.m.GetRules() {
		if _, err := policy.ParseRule(r); err != nil {
			return messages.Fail(messages.CodeBadRequest, err.Error(), "")
		}
	}
	if fail := b.checkEnv(); fail != nil {
		return fail
	}
	if fail := checkRun(b.svc, b.m); fail != nil {
		return fail
	}
	if fail := b.m.GetBudget().Refuse(); fail != nil {
		return fail
	}
	return b.svc.checkFields(b.m.GetFields())
}

// checkEnv refuses variables that no command may be given, and secrets: what a session is made with is written down.
func (b *sessionBuilder) checkEnv() *messages.Failure {
	seen := make(map[string]bool)
	for _, v := range b.m.GetEnv() {
		err := tools.CheckVariable(v.GetName(), v.GetValue(), messages.Trust_FULL) // what trust allows is looked at by each call
		switch {
		case err != nil:
			return messages.Fail(messages.CodeBadRequest, asToolError(err).Message, "")
		case seen[v.GetName()]:
			return messages.Fail(messages.CodeBadRequest, fmt.Sprintf("the variable %s is given twice", v.GetName()), "")
		case b.svc.Redact.String(v.GetValue()) != v.GetValue():
			return messages.Fail(messages.CodeBadRequest, fmt.Sprintf("the variable %s holds a secret, and what a session is made with is written down", v.GetName()),
				"hand it on from the runtime's own variables instead: env.inherit in the configuration")
		}
		seen[v.GetName()] = true
	}
	return nil
}
