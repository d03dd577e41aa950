package workspace

import "testing"

// Attack path-041, as far as it is decided by names: on Windows itself the attack test runs it whole.
func TestNamesThatWindowsReadsInAnotherWayAreRefusedThere(t *testing.T) {
	for _, name := range []string{"CON", "con", "CON.txt", "con.tar.gz", "Aux", "nul ", "NUL .x", "com1", "COM9.log", "lpt\u00b2", "CONIN$", "a:b", "a.", "a ", "a?", "CLOCK$.x"} {
		if windowsName(name) {
			t.Errorf("%q is let through", name)
		}
	}
	for _, name := range []string{"..", "a", "CONS", "console", "COM", "COM10", "com1a", "auxiliary.txt", "x.CON", ".nul", "null"} {
		if !windowsName(name) {
			t.Errorf("%q is refused", name)
		}
	}
}
