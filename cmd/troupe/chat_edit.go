package main

import (
	"context"
	"errors"
	"io"
	"strings"

	"golang.org/x/term"
)

// errCtrlC says that somebody pressed Ctrl-C where a line is asked for.
var errCtrlC = errors.New("Ctrl-C at the prompt")

// prompts asks for prompts: with line editing and history on a terminal, else line by line without a word.
type prompts struct {
	a       *app
	in      *source
	history term.History
	plain   bool // a terminal that knows no more than lines
}

// next gives the next prompt. Lines that end in a backslash, or were pasted together, are one. io.EOF is the end of the input.
func (p *prompts) next(ctx context.Context) (string, error) {
	if !p.a.canAsk() {
		return p.joined(func(bool) (string, error) { return p.in.line(ctx, maxPrompt) })
	}
	if p.plain {
		return p.joined(func(more bool) (string, error) {
			if _, err := io.WriteString(p.a.err, promptText(more)); err != nil {
				return "", err
			}
			return p.in.line(ctx, maxPrompt)
		})
	}
	return p.edited(ctx)
}

func promptText(more bool) string {
	if more {
		return "| "
	}
	return "> "
}

// joined puts lines together that a backslash goes on.
func (p *prompts) joined(line func(more bool) (string, error)) (string, error) {
	var all []string
	for {
		one, err := line(len(all) > 0)
		switch {
		case errors.Is(err, io.EOF) && len(all) > 0:
			return strings.Join(all, "\n"), nil
		case err != nil:
			return "", err
		}
		begun, goesOn := strings.CutSuffix(one, `\`)
		all = append(all, begun)
		if !goesOn {
			return strings.Join(all, "\n"), nil
		}
	}
}

// edited reads from a terminal that is in raw mode meanwhile, and only then.
func (p *prompts) edited(ctx context.Context) (string, error) {
	fd := int(p.in.Fd())
	before, err := term.MakeRaw(fd)
	if err != nil {
		p.plain = true
		return p.next(ctx)
	}
	defer func() { _ = term.Restore(fd, before) }() // of a terminal that has gone: nobody is left to be told
	keys := &keyboard{ctx: ctx, in: p.in, out: p.a.err}
	t := term.NewTerminal(keys, promptText(false))
	t.History = p.history
	if width, height, err := term.GetSize(fd); err == nil && width > 0 {
		_ = t.SetSize(width, height) // it never fails
	}
	t.SetBracketedPasteMode(true)
	defer t.SetBracketedPasteMode(false)
	text, err := p.joined(func(more bool) (string, error) {
		t.SetPrompt(promptText(more))
		return pasted(t)
	})
	switch {
	case keys.stopped != nil:
		return "", keys.stopped
	case errors.Is(err, io.EOF) && keys.ctrlC:
		_, err := io.WriteString(p.a.err, "\r\n")
		return "", errors.Join(errCtrlC, err)
	case errors.Is(err, io.EOF):
		_, werr := io.WriteString(p.a.err, "\r\n")
		return "", errors.Join(err, werr)
	}
	return text, err
}

// pasted reads a line, and the lines that were pasted with it.
func pasted(t *term.Terminal) (string, error) {
	var all []string
	for {
		line, err := t.ReadLine()
		if err != nil && !errors.Is(err, term.ErrPasteIndicator) {
			return "", err
		}
		all = append(all, line)
		if err == nil {
			return strings.TrimRight(strings.Join(all, "\n"), "\n"), nil
		}
		t.SetPrompt(promptText(true))
	}
}

// keyboard hands keys to a terminal, at most one line at a time: what follows is for whoever reads next.
type keyboard struct {
	ctx     context.Context //nolint:containedctx // io.Reader has no place for it; it lives for one prompt
	in      *source
	out     io.Writer
	ctrlC   bool
	stopped error
}

// Read gives the next keys.
func (k *keyboard) Read(p []byte) (int, error) {
	if err := k.in.fill(k.ctx); err != nil {
		if !errors.Is(err, io.EOF) {
			k.stopped = err
		}
		return 0, io.EOF
	}
	b := k.in.until(len(p), "\r\n\x03")
	k.ctrlC = len(b) > 0 && b[len(b)-1] == 3
	return copy(p, b), nil
}

// Write shows what the terminal says.
func (k *keyboard) Write(p []byte) (int, error) { return k.out.Write(p) }
