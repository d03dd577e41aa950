package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/model/canned"
	"github.com/troupe-dev/troupe/model/replay"
	"github.com/troupe-dev/troupe/model/script"
)

// fakeFlags are the flags of `troupe fake-model`.
type fakeFlags struct {
	script, replay, listen, keyEnv string
	options                        canned.ServeOptions
}

func newFakeModel(a *app) *cobra.Command {
	f := &fakeFlags{}
	cmd := &cobra.Command{
		Use:   "fake-model --script FILE | --replay FILE",
		Short: "Serve a script or a recording as an OpenAI-compatible endpoint",
		Long: `Serve a script or a recording as an OpenAI-compatible endpoint, until Ctrl-C.

stdout gets one line, the base URL, once requests are answered. The endpoint is as strict as a
provider, and the flags below make it misbehave like one. GET /stats counts what was asked.

  troupe fake-model --script FILE --listen 127.0.0.1:9999
  OPENAI_BASE_URL=http://127.0.0.1:9999/v1 troupe run "..." -m openai/any`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.fakeModel(cmd.Context(), f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.script, "script", "", "`FILE` of the script, or the name of a built-in one")
	flags.StringVar(&f.replay, "replay", "", "`FILE` of a recording, made with --record; instead of --script")
	flags.StringVar(&f.listen, "listen", "127.0.0.1:0", "`ADDR` to listen on; port 0 takes a free one")
	flags.StringVar(&f.keyEnv, "key-env", "", "variable `NAME` that holds the key which requests need")
	o := &f.options
	flags.DurationVar(&o.Latency, "latency", 0, "pause before each answer, such as 200ms")
	flags.DurationVar(&o.ChunkDelay, "chunk-delay", 0, "pause before each piece of an answer")
	flags.IntVar(&o.ChunkSize, "chunk-size", 0, "`CHARACTERS` per piece")
	flags.IntVar(&o.TruncateAfter, "truncate-after", 0, "cut each stream off after `BYTES`")
	flags.IntVar(&o.FailFirst, "fail-first", 0, "refuse the first `N` requests")
	flags.IntVar(&o.FailStatus, "fail-status", http.StatusTooManyRequests, "HTTP `STATUS` of the refused ones, such as 429 or 500")
	flags.DurationVar(&o.RetryAfter, "retry-after", 0, "what the refused ones are told to wait")
	flags.BoolVar(&o.Garbage, "garbage", false, "send events that are not JSON")
	return cmd
}

func (a *app) fakeModel(ctx context.Context, f *fakeFlags) error {
	switch {
	case f.script == "" && f.replay == "":
		e := usage("troupe fake-model: --script is missing, or --replay")
		e.hint = "name a file, or one of the built-in scripts: tour, echo"
		return e
	case f.script != "" && f.replay != "":
		return usage("troupe fake-model: --script and --replay exclude each other")
	}
	if s := f.options.FailStatus; s < 400 || s > 599 {
		return usage("troupe fake-model: --fail-status %d is no status of an error (400 to 599)", s)
	}
	if f.options.Latency < 0 || f.options.ChunkDelay < 0 || f.options.RetryAfter < 0 || f.options.ChunkSize < 0 || f.options.TruncateAfter < 0 || f.options.FailFirst < 0 {
		return usage("troupe fake-model: pauses, sizes and counts cannot be below 0")
	}
	if f.keyEnv != "" {
		if f.options.APIKey = a.env[f.keyEnv]; f.options.APIKey == "" {
			return &exitError{code: exitConfig, what: fmt.Sprintf("--key-env: the variable %s is not set", f.keyEnv), hint: "export it"}
		}
	}
	if err := checkListen(f); err != nil {
		return err
	}
	what, handler, err := a.canned(f)
	if err != nil {
		return err
	}
	l, err := listen(ctx, "--listen", f.listen)
	if err != nil {
		return err
	}
	a.note("troupe: %s; no language model is running; Ctrl-C ends it", what)
	if err := a.say(baseURL(l)); err != nil {
		return errors.Join(err, l.Close())
	}
	if err := serve(ctx, l, handler); err != nil {
		return &exitError{code: exitIO, what: err.Error(), err: err}
	}
	return nil
}

// canned is what answers, and what it is called.
func (a *app) canned(f *fakeFlags) (what string, h http.Handler, err error) {
	if f.script != "" {
		s, err := loadScript(f.script)
		if err != nil {
			return "", nil, err
		}
		return "script " + s.Name, script.Handler(s, f.options), nil
	}
	r, err := loadRecording(f.replay)
	if err != nil {
		return "", nil, err
	}
	if r.Torn != "" {
		a.note("troupe: warning: %s", visible(r.Torn))
	}
	return "recording " + r.Name, replay.Handler(r, f.options), nil
}

// checkListen refuses addresses that others can reach, unless a key is asked of them.
func checkListen(f *fakeFlags) error {
	host, _, err := net.SplitHostPort(f.listen)
	if err != nil {
		e := usage("--listen %s: %v", f.listen, err)
		e.hint = "an address is HOST:PORT, for example 127.0.0.1:9999"
		return e
	}
	ip := net.ParseIP(host)
	if f.keyEnv != "" || host == "localhost" || ip != nil && ip.IsLoopback() {
		return nil
	}
	return &exitError{code: exitDenied, what: fmt.Sprintf("--listen %s: others could reach this address", f.listen), hint: "use 127.0.0.1, or ask for a key with --key-env"}
}

func baseURL(l net.Listener) string { return "http://" + l.Addr().String() + "/v1" }
