package openai

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"
)

func TestACleanStringIsDecodedAsEncodingJSONDoes(t *testing.T) {
	for _, s := range []string{``, `a`, `\n`, `a\u00e9\ud83d\ude00b\"\\\/`, `\u0000\b\f\r\t`, `\uD834\uDD1E`, `\ufffd`} {
		same(t, []byte(s))
	}
	rapid.Check(t, func(r *rapid.T) {
		s := rapid.SliceOf(rapid.SampledFrom([]string{"a", "é", "😀", `\n`, `\"`, `\\`, `\/`, `\u0041`, `\ud83d`, `\ude00`, `\u00ff`, "\xff"})).Draw(r, "pieces")
		var body []byte
		for _, p := range s {
			body = append(body, p...)
		}
		same(r, body)
	})
}

func same(t interface{ Fatalf(string, ...any) }, body []byte) {
	quoted := append(append([]byte{'"'}, body...), '"')
	c := cursor{b: quoted}
	got, clean, ok := c.str()
	if !ok || !clean {
		return
	}
	var want string
	if err := json.Unmarshal(quoted, &want); err != nil {
		t.Fatalf("%s: %v", quoted, err)
	}
	if s := unescape(got); s != want {
		t.Fatalf("%s: %q, want %q", quoted, s, want)
	}
}
