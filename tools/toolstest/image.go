package toolstest

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// image is made of programs of this machine: no registry is asked.
const image = "localhost/troupe-test:1"

// Image is the name of a container image with a shell and some tools, which is made when it is
// missing. Without a container engine the test is skipped.
func Image(t testing.TB) string {
	t.Helper()
	engine, err := exec.LookPath("podman")
	if err != nil {
		if engine, err = exec.LookPath("docker"); err != nil {
			t.Skip("neither podman nor docker on this machine")
		}
	}
	if exec.Command(engine, "image", "inspect", image).Run() == nil {
		return image
	}
	file := filepath.Join(t.TempDir(), "image.tar")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	w, have := tar.NewWriter(f), map[string]bool{}
	for _, p := range strings.Fields("sh cat ls sleep env id yes setsid tail grep readlink wc mkdir rm touch mv rmdir ln pwd head dd") {
		at, err := exec.LookPath(p)
		if err != nil {
			t.Skipf("no %s here to make an image of: %v", p, err)
		}
		pack(t, w, have, at, "bin/"+p)
		libs, _ := exec.Command("ldd", at).Output()
		for _, word := range strings.Fields(string(libs)) {
			if strings.HasPrefix(word, "/") {
				pack(t, w, have, word, word[1:])
			}
		}
	}
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(engine, "import", file, image).CombinedOutput(); err != nil {
		t.Skipf("the engine does not import an image: %v: %s", err, out)
	}
	return image
}

// pack adds a program or library to an image.
func pack(t testing.TB, w *tar.Writer, have map[string]bool, from, to string) {
	t.Helper()
	if have[to] {
		return
	}
	have[to] = true
	f, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil {
		err = w.WriteHeader(&tar.Header{Name: to, Mode: 0o755, Size: info.Size(), Typeflag: tar.TypeReg})
	}
	if err == nil {
		_, err = io.Copy(w, f)
	}
	if err != nil {
		t.Fatal(err)
	}
}
