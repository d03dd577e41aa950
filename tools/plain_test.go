package tools

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"
)

// What is read without a decoder is what the decoder would have read, and nothing that it refuses.
func FuzzPlainArgumentsAreWhatTheDecoderReads(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"a":1}`, ` { "a" : [ 1 , -2.5e+3 , "x" , null , true , false ] , "b" : { } } `, `{"a":"\u00e9\n\"\\"}`, `{"a":"\ud800"}`,
		`{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `{"a":{"b":1,"b":2}}`, `{"a":01}`, `{"a":1.}`, `{"a":.5}`, `{"a":+1}`, `{"a":1e}`, `{"a":-}`, `{"a":"x`,
		`{"a":"\x"}`, `{"a":"\u12"}`, "{\"a\":\"\x01\"}", `{"a":1,}`, `{,}`, `{"a"}`, `{a:1}`, `[1]`, `"x"`, `{} {}`, `{}x`, `{"a":nul}`, `{"a":tru}`,
		`{"a":[1,]}`, `{"a":[,1]}`, `{"é":"ü"}`, `{"a":1E400}`, `{"a":"` + "\u2028" + `"}`, "{\"a\":\"\x7f\"}", `{"":""}`, `{"a":"\"}`,
	} {
		f.Add([]byte(s))
	}
	for _, depth := range []int{62, 63, 64, 65} {
		f.Add([]byte(`{"a":` + string(bytes.Repeat([]byte{'['}, depth)) + string(bytes.Repeat([]byte{']'}, depth)) + `}`))
	}
	f.Fuzz(agree)
}

func agree(t *testing.T, args []byte) {
	t.Helper()
	trimmed := bytes.TrimSpace(args)
	if len(trimmed) == 0 || !utf8.Valid(trimmed) || string(trimmed) == "null" {
		return
	}
	plain, ok := plainArguments(trimmed)
	explained, err := explainedArguments(trimmed)
	if ok != (err == nil) {
		t.Fatalf("%q: taken without a decoder: %v; with one: %v", trimmed, ok, err)
	}
	if ok && !reflect.DeepEqual(plain, explained) {
		t.Fatalf("%q: %#v without a decoder, %#v with one", trimmed, plain, explained)
	}
}

func TestDamagedArgumentsAreNotReadDifferently(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same damage every time
	whole := []byte(`{"path":"a/b.go","n":[1,-2.5e3,{"x":null}],"t":true,"s":"\u00e9\"\\ ü","o":{"k":"v","":0}}`)
	for range 20_000 {
		b := bytes.Clone(whole)
		for range 1 + r.IntN(3) {
			at := r.IntN(max(1, len(b)))
			if len(b) == 0 {
				break
			}
			switch r.IntN(4) {
			case 0:
				b[at] = byte(r.IntN(128))
			case 1:
				b = append(b[:at], b[at+1:]...)
			case 2:
				b = append(b[:at:at], append([]byte{whole[r.IntN(len(whole))]}, b[at:]...)...)
			default:
				b = b[:at+1]
			}
		}
		agree(t, b)
	}
}

// TestAKeptPathKeepsNoContentAlong reads arguments of 1 MiB each and keeps the short one of their two values.
func TestAKeptPathKeepsNoContentAlong(t *testing.T) {
	const calls, size = 32, 1 << 20
	args := []byte(`{"path": "note.txt", "content": "` + strings.Repeat("x", size) + `"}`)
	live := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, paths := live(), make([]any, calls)
	for i := range paths {
		object, ok := plainArguments(args)
		if !ok {
			t.Fatal("the arguments are not read")
		}
		paths[i] = object["path"]
	}
	if after := live(); after > before+calls*size/4 {
		t.Errorf("%d paths keep %d bytes", calls, after-before)
	}
	runtime.KeepAlive(paths)
	runtime.KeepAlive(args)
}
