package tools

import "testing"

func TestTwoChangesOfOneTextComeTogetherOrAreRefused(t *testing.T) {
	const base = "1\n2\n3\n4\n5\n6\n7\n8\n9\n"
	for _, c := range []struct{ what, ours, theirs, want string }{
		{"apart", "1\n2\n3\n4\n5\n6\n7\n8\nnine\n", "one\n2\n3\n4\n5\n6\n7\n8\n9\n", "one\n2\n3\n4\n5\n6\n7\n8\nnine\n"},
		{"the same", "1\n2\nx\n4\n5\n6\n7\n8\n9\n", "1\n2\nx\n4\n5\n6\n7\n8\n9\n", "1\n2\nx\n4\n5\n6\n7\n8\n9\n"},
		{"one the same, one not", "1\nx\n3\n4\n5\n6\n7\n8\ny\n", "1\nx\n3\n4\n5\n6\n7\n8\n9\n", "1\nx\n3\n4\n5\n6\n7\n8\ny\n"},
		{"inserted and deleted", "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\n2\n3\n4\n5\n6\n7\n", "0\n1\n2\n3\n4\n5\n6\n7\n"},
		{"one line", "1\nx\n3\n4\n5\n6\n7\n8\n9\n", "1\ny\n3\n4\n5\n6\n7\n8\n9\n", ""},
		{"neighbours", "1\nx\n3\n4\n5\n6\n7\n8\n9\n", "1\n2\ny\n4\n5\n6\n7\n8\n9\n", ""},
		{"inserted in one place", "1\nx\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\ny\n2\n3\n4\n5\n6\n7\n8\n9\n", ""},
		{"no text", "\x00", "1\n", ""},
		{"untouched", base, "z\n", "z\n"},
	} {
		got, ok := Merge(base, c.ours, c.theirs)
		if ok != (c.want != "") || ok && got != c.want {
			t.Errorf("%s: %q %v, want %q", c.what, got, ok, c.want)
		}
		if turned, same := Merge(base, c.theirs, c.ours); same != ok || turned != got {
			t.Errorf("%s: the other way round %q %v", c.what, turned, same)
		}
	}
}
