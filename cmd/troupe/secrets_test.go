package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"iter"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model"
	"github.com/troupe-dev/troupe/model/script"
	"github.com/troupe-dev/troupe/persistence"
	"github.com/troupe-dev/troupe/persistence/badger"
)

// prying is a script whose commands look for keys where a command can.
const prying = `
name: prying
rules:
  - match: '^look'
    steps:
      - tool_calls:
          - {name: exec, arguments: {command: 'cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline KEYFILE 2>/dev/null | tr "\000" "\n"; env'}}
          - {name: exec, arguments: {command: 'yes filler | head -20000; base64 -w 30 KEYFILE; od -An -tx1 KEYFILE; rev KEYFILE >/dev/null; cat KEYFILE KEYFILE'}}
          - {name: exec, arguments: {command: 'printf %.15s "$GITHUB_TOKEN"; sleep 0.7; printf %s "$GITHUB_TOKEN" | tail -c +16'}}
      - text: 'I found ${tool.content}'
`

func TestKeysOfAllProvidersAndSecretsOfTheEnvironmentAreKeptNowhere(t *testing.T) {
	m := newMachine(t)
	keys := map[string]string{"used": "sk-Used-11112222333344445555", "file": "sk-File-66667777888899990000+/", "token": "ghp_Token0123456789abcdefABCDEF", "odd": "Odd-0123456789-odd"}
	s, err := script.Parse("prying.yaml", []byte(strings.ReplaceAll(prying, "KEYFILE", m.write("key", keys["file"]+"\n"))))
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(script.Handler(s, script.ServeOptions{APIKey: keys["used"]}))
	defer srv.Close()
	conf := m.write("config.yaml", fmt.Sprintf(`
model: one/m
providers:
  one: {base_url: %q, api_key_env: ODD_NAME, limits: {attempts: 1}}
  two: {base_url: "http://127.0.0.1:1/v1", api_key_file: %q}
  three: {base_url: "http://127.0.0.1:1/v1", api_key_env: ODDER}
env: {inherit: [GITHUB_TOKEN]}
sandbox: {exec: none}
log: {level: debug}
`, srv.URL+"/v1", m.folder("key")))
	cmd := m.command("run", "look around", "-C", "a", "--trust", "full", "--config", conf, "-o", "ndjson", "-v")
	cmd.Env = append(cmd.Env, "ODD_NAME="+keys["used"], "ODDER="+keys["odd"], "GITHUB_TOKEN="+keys["token"])
	said, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(said, []byte("[redacted]")) || !bytes.Contains(said, []byte("done")) {
		t.Fatalf("%v: %s", err, said)
	}
	texts := map[string]string{"output": string(said), "records": m.records()}
	err = filepath.WalkDir(m.home, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		texts[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for where, text := range texts {
		bare := strings.Join(strings.Fields(text), "")
		for name, key := range keys {
			for form, value := range map[string]string{"plain": key, "base64": "c2stRmlsZS02NjY2Nzc3Nzg4", "hex": "736b2d46696c65", "end": key[15:]} {
				if strings.Contains(bare, value) {
					t.Errorf("the key %s is in %s (%s)", name, where, form)
				}
			}
		}
	}
}

// records is all that the store of the machine keeps, as text.
func (m *machine) records() string {
	m.t.Helper()
	ctx := context.Background()
	s, err := badger.Open(ctx, badger.Options{Dir: troupe.StoreDir(filepath.Join(m.home, ".local/share/troupe"))})
	if err != nil {
		m.t.Fatal(err)
	}
	defer s.Close()
	var b strings.Builder
	err = s.Streams(ctx, "", func(stream string) error {
		return s.Read(ctx, stream, 1, func(e persistence.Entry) error {
			read := messages.WorkerFactIn
			if strings.HasPrefix(stream, "ses/") {
				read = messages.SessionFactIn
			}
			fact, err := read(e.Record)
			b.WriteString(prototext.Format(fact) + "\n")
			return err
		})
	})
	if err == nil {
		err = s.Index(ctx, "", func(key string, value []byte) error {
			b.WriteString(key + string(value) + "\n")
			return nil
		})
	}
	if err != nil || b.Len() == 0 {
		m.t.Fatalf("the store gives %d bytes, %v", b.Len(), err)
	}
	return b.String()
}

func TestSecretsAreBlankInTheVariablesThatTheKernelShows(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("variables of processes are files on Linux only")
	}
	m := newMachine(t)
	script := m.write("s.yaml", "name: s\nrules: [{reply: {text: hi}}]\n")
	cmd := m.command("fake-model", "--script", script)
	cmd.Env = append(cmd.Env, "OPENAI_API_KEY=sk-Blank-0123456789", "DSN=postgres://me:hunter2-hunter2@h/db", "ROOM=sk")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	if _, err := out.Read(make([]byte, 10)); err != nil { // it is past its start
		t.Fatal(err)
	}
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	want := "OPENAI_API_KEY=*******************\x00DSN=postgres://me:***************@h/db\x00ROOM=sk\x00"
	if !strings.Contains(string(env), want) {
		t.Errorf("the kernel shows %q", env)
	}
}

// refusing is a model that wants one key.
type refusing struct {
	keys  *keys
	right string
	asked int
}

func (r *refusing) Stream(ctx context.Context, _ *model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		r.asked++
		if key, err := r.keys.key(ctx, "p"); err != nil || key.Reveal() != r.right {
			yield(model.Event{}, &model.Error{Class: model.Auth, Message: "wrong key"})
			return
		}
		yield(model.Event{Kind: model.Finish, Reason: "stop"}, nil)
	}
}

func TestTheCommandOfAKeyRunsOnceUntilItsKeyIsOldOrRefused(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	text := fmt.Sprintf("providers: {p: {base_url: 'http://h', api_key_command: 'echo run >> %[1]s/runs; cat %[1]s/key'}}\n", dir)
	put := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("config.yaml", text)
	put("key", "Key-number-1")
	loaded, err := config.Load(config.Options{Env: config.Env{"PATH": os.Getenv("PATH")}, File: file, System: "-"})
	if err != nil {
		t.Fatal(err)
	}
	runs := func() int {
		text, err := os.ReadFile(filepath.Join(dir, "runs"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(text), "run")
	}
	secrets := config.NewRedactor()
	k := newKeys(loaded, secrets)
	now := time.Now()
	k.now = func() time.Time { return now }
	m := &keyed{Model: &refusing{keys: k, right: "Key-number-1"}, provider: "p", keys: k}
	ask := func() error {
		_, err := model.Collect(m.Stream(t.Context(), &model.Request{}), nil)
		return err
	}
	if err := ask(); err != nil || runs() != 1 || secrets.String("Key-number-1") != "[redacted]" {
		t.Fatalf("first: %v, %d runs", err, runs())
	}
	if err := ask(); err != nil || runs() != 1 {
		t.Errorf("second: %v, %d runs", err, runs())
	}
	now = now.Add(keyTime)
	if err := ask(); err != nil || runs() != 2 {
		t.Errorf("when it was old: %v, %d runs", err, runs())
	}
	put("key", "Key-number-2")
	r := m.Model.(*refusing)
	r.right, r.asked = "Key-number-2", 0
	if err := ask(); err != nil || runs() != 3 || r.asked != 2 {
		t.Errorf("when it was refused: %v, %d runs, asked %d times", err, runs(), r.asked)
	}
	r.right, r.asked = "Key-number-3", 0
	if err := ask(); err == nil || runs() != 4 || r.asked != 1 {
		t.Errorf("when no other is to be had: %v, %d runs, asked %d times", err, runs(), r.asked)
	}
}
