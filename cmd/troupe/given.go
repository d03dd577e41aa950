package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"unicode/utf8"
)

// given reads what a command line names: a file, or a pipe such as a shell makes of <(command). Nothing may ever come out of
// a pipe, so that the reading is left alone when the command is to end: the process ends with it.
func given(ctx context.Context, name string, most int64) ([]byte, error) {
	type read struct {
		b   []byte
		err error
	}
	came := make(chan read, 1)
	go func() {
		b, err := readUpTo(name, most)
		came <- read{b, err}
	}()
	select {
	case r := <-came:
		return r.b, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("read %s: %w", visible(name), ctx.Err())
	}
}

// readUpTo reads a file. Of one that has more than most bytes it is the first most+1.
func readUpTo(name string, most int64) ([]byte, error) {
	f, err := os.Open(name) //nolint:gosec // the user names it
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || info.IsDir() {
		return nil, &exitError{code: exitInput, what: visible(name) + " is no file", hint: "name a file"}
	}
	return io.ReadAll(io.LimitReader(f, most+1))
}

// maxInput bounds an input of type file of a pipeline, in bytes, as the server bounds a request.
const maxInput = 16 << 20

// givenText reads a text. JSON holds no other bytes: they would become others without a word.
func givenText(ctx context.Context, name string) (string, error) {
	b, err := given(ctx, name, maxInput)
	if err != nil {
		return "", err
	}
	if len(b) > maxInput {
		return "", &exitError{code: exitInput, what: fmt.Sprintf("%s has more than %d MiB", visible(name), maxInput>>20), hint: "give a smaller file, or its path as an input of type path"}
	}
	if !utf8.Valid(b) || bytes.IndexByte(b, 0) >= 0 {
		return "", &exitError{code: exitInput, what: visible(name) + ": the file is not text in UTF-8", hint: "only texts can be given along"}
	}
	return string(b), nil
}

// besideFile reads a file that another one names. It came with that, and the user does not know it: nothing but a file is opened.
func besideFile(name string, most int64) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errNotRegular}
	}
	return readUpTo(name, most)
}

var errNotRegular = errors.New("it is no regular file")
