package sandbox

import (
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/troupe-dev/troupe/tools"
)

// A folder is lent until the last command ends there, whichever process that is of and whether
// the one that made it has ended or was killed: under a command it would be the host's to fill.
func TestAFolderIsLentUntilTheLastProcessHasNoCommandThere(t *testing.T) {
	for name, killed := range map[string]bool{"ended": false, "killed": true} {
		t.Run(name, func(t *testing.T) {
			eachConfined(t, func(t *testing.T, _ tools.Sandbox) {
				mode, ws, cache := modeOf(t), folder(t), folder(t)
				dir := filepath.Join(ws, troupeFolder)
				first := lender(t, mode, ws, cache, "touch begun; while ! test -e go; do sleep 0.05; done")
				second := detect(t, mode, func(o *Options) { o.CacheDir = cache })
				ended := make(chan string, 1)
				go func() {
					out, exit, err := try(t.Context(), second, ws, "touch second; while ! test -e go2; do sleep 0.05; done; mkdir -p .troupe; echo x > .troupe/config.yaml; echo ran")
					if err != nil || exit.Code != 0 && mode == bareLandlock {
						t.Errorf("the second process's command: %+v %v", exit, err)
					}
					ended <- out
				}()
				await(t, filepath.Join(ws, "second"))
				if !killed {
					touch(t, filepath.Join(ws, "go"))
				}
				first(killed)
				third := detect(t, mode, func(o *Options) { o.CacheDir = cache })
				if _, err := os.Stat(dir); err != nil {
					t.Errorf("the folder is gone under a command: %v", err)
				}
				touch(t, filepath.Join(ws, "go2"))
				<-ended
				if _, err := os.Stat(dir); err == nil {
					t.Error("the last command has left the folder")
				}
				if held, err := os.ReadDir(filepath.Join(cache, "masks")); err != nil || len(held) != 0 {
					t.Errorf("noted are %v %v", held, err)
				}
				if out, exit := sh(t, third, ws, "echo again"); out != "again\n" || exit.Code != 0 {
					t.Errorf("the next command: %q %+v", out, exit)
				}
			})
		})
	}
}

// Whenever processes begin and end: while one has a command there the folder is, and it is that
// of the note; and after the last one nothing is.
func TestProcessesThatBeginAndEndAtOnceAgreeOnTheFolder(t *testing.T) {
	ws, o := folder(t), &Options{CacheDir: folder(t)}
	dir := filepath.Join(ws, troupeFolder)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 300 {
				m := newMasks(o)
				release, err := m.take(ws)
				if err != nil {
					t.Error(err)
					return
				}
				before, err := identify(dir)
				if err != nil {
					t.Errorf("in use, round %d: %v", i, err)
				}
				if m.made[ws] == nil {
					t.Errorf("round %d: what another process has lent is taken for the workspace's own", i)
				}
				if after, err := identify(dir); err != nil || after != before {
					t.Errorf("in use, round %d: it is another folder: %v", i, err)
				}
				release()
			}
		})
	}
	all.Wait()
	if _, err := os.Stat(dir); err == nil {
		t.Error("the folder stays")
	}
	if notes, err := os.ReadDir(o.notes()); err != nil || len(notes) != 0 {
		t.Errorf("noted are %v %v", notes, err)
	}
}

// Processes that hide a folder by different means do not share it: the one that covers it would
// leave what a command of the other has put there.
func TestAFolderThatIsCoveredIsNotSharedWithCommandsThatCouldWriteThere(t *testing.T) {
	ws, o := folder(t), &Options{CacheDir: folder(t)}
	covers, bare := newMasks(o), newMasks(o)
	bare.aside = true
	release, err := covers.take(ws)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bare.take(ws); err == nil {
		t.Error("it is shared")
	}
	release()
	if release, err = bare.take(ws); err != nil {
		t.Fatal(err)
	}
	also, err := covers.take(ws)
	if err != nil {
		t.Fatal(err)
	}
	touch(t, filepath.Join(ws, troupeFolder, "config.yaml"))
	release()
	also() // the last one goes by what the first one noted
	if _, err := os.Stat(filepath.Join(ws, troupeFolder)); err == nil {
		t.Error("what a command wrote stays where it counts")
	}
}

// A person who removes or replaces the folder under commands is neither waited for nor taken from.
func TestAFolderThatAPersonReplacedWhileItWasLentStays(t *testing.T) {
	ws, o := folder(t), &Options{CacheDir: folder(t)}
	dir := filepath.Join(ws, troupeFolder)
	first, second := newMasks(o), newMasks(o)
	first.aside = true
	release, err := first.take(ws)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := second.take(ws); err == nil {
		t.Error("a folder that is gone is shared")
	}
	persons(t, dir)
	theirs, err := second.take(ws)
	if err != nil {
		t.Fatal(err)
	}
	theirs()
	release()
	if _, err := os.Stat(filepath.Join(dir, "config.yaml")); err != nil {
		t.Errorf("a person's folder is gone: %v", err)
	}
}

func TestAFolderThatAPersonMakesAfterAKillStays(t *testing.T) {
	eachConfined(t, func(t *testing.T, _ tools.Sandbox) {
		mode, ws, cache := modeOf(t), folder(t), folder(t)
		dir := filepath.Join(ws, troupeFolder)
		lender(t, mode, ws, cache, "touch begun; exec sleep 600")(true)
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		persons(t, dir)
		_ = detect(t, mode, func(o *Options) { o.CacheDir = cache })
		if _, err := os.Stat(filepath.Join(dir, "config.yaml")); err != nil {
			t.Errorf("a person's folder is gone: %v", err)
		}
	})
}

// What a note says is believed of the very folder that it describes, under the name of that folder's workspace, and of nothing else.
func TestAForgedNoteTakesNothingAway(t *testing.T) {
	for name, forge := range map[string]func(k *kept, note *string){
		"without a folder's number": func(k *kept, _ *string) { k.identity = identity{} },
		"of another inode":          func(k *kept, _ *string) { k.Inode++ },
		"of another device":         func(k *kept, _ *string) { k.Device++ },
		"of another birth":          func(k *kept, _ *string) { k.Born++ },
		"under another name":        func(_ *kept, note *string) { *note = noteName("/elsewhere") },
	} {
		t.Run(name, func(t *testing.T) {
			ws, o := folder(t), &Options{CacheDir: folder(t)}
			persons(t, filepath.Join(ws, troupeFolder))
			is, err := identify(filepath.Join(ws, troupeFolder))
			if err != nil {
				t.Fatal(err)
			}
			k, note := kept{ws, true, is}, noteName(ws)
			forge(&k, &note)
			noted(t, o, k, note)
			_ = newMasks(o)
			if release, err := newMasks(o).take(ws); err == nil {
				release()
			}
			if _, err := os.Stat(filepath.Join(ws, troupeFolder, "config.yaml")); err != nil {
				t.Errorf("it was taken away: %v", err)
			}
		})
	}
	t.Run("and a true one counts", func(t *testing.T) {
		ws, o := folder(t), &Options{CacheDir: folder(t)}
		persons(t, filepath.Join(ws, troupeFolder))
		is, err := identify(filepath.Join(ws, troupeFolder))
		if err != nil {
			t.Fatal(err)
		}
		noted(t, o, kept{ws, true, is}, noteName(ws))
		_ = newMasks(o)
		if _, err := os.Stat(filepath.Join(ws, troupeFolder)); err == nil {
			t.Error("it stays: the others would stay for any reason")
		}
	})
	t.Run("an empty folder without a number is given back", func(t *testing.T) {
		ws, o := folder(t), &Options{CacheDir: folder(t)}
		if err := os.Mkdir(filepath.Join(ws, troupeFolder), 0o700); err != nil {
			t.Fatal(err)
		}
		noted(t, o, kept{Workspace: ws, Aside: true}, noteName(ws))
		_ = newMasks(o)
		if _, err := os.Stat(filepath.Join(ws, troupeFolder)); err == nil {
			t.Error("what was killed between the note and the folder's number is left")
		}
	})
}

func noted(t *testing.T, o *Options, k kept, name string) {
	t.Helper()
	if err := os.MkdirAll(o.notes(), 0o700); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(k)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(o.notes(), name), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// What is no note is neither written to nor removed.
func TestWhatIsNoNoteIsLeftAlone(t *testing.T) {
	o, precious, ws := &Options{CacheDir: folder(t)}, folder(t), folder(t)
	file := filepath.Join(precious, noteName("/a"))
	touch(t, file)
	if err := os.MkdirAll(o.notes(), 0o700); err != nil {
		t.Fatal(err)
	}
	touch(t, filepath.Join(o.notes(), "letter"))
	if err := os.Symlink(file, filepath.Join(o.notes(), noteName(ws))); err != nil {
		t.Fatal(err)
	}
	if release, err := newMasks(o).take(ws); err == nil {
		release()
		t.Error("a link serves as a note")
	}
	if _, err := os.Stat(filepath.Join(o.notes(), "letter")); err != nil {
		t.Errorf("a file of another name: %v", err)
	}
	linked := &Options{CacheDir: folder(t)}
	if err := os.Symlink(precious, linked.notes()); err != nil {
		t.Fatal(err)
	}
	_ = newMasks(linked)
	if text, err := os.ReadFile(file); err != nil || string(text) != "x" {
		t.Errorf("what a link leads to holds %q: %v", text, err)
	}
}

// A workspace that contains the cache, as one's home does, shows a command no notes and lets it write none.
func TestCommandsNeitherSeeNorWriteNotes(t *testing.T) {
	each(t, func(t *testing.T, _ tools.Sandbox) {
		ws := folder(t)
		cache := filepath.Join(ws, "cache")
		s := detect(t, modeOf(t), func(o *Options) { o.CacheDir = cache })
		out, exit := sh(t, s, ws, "ls -A cache/masks; { echo forged > cache/masks/note; } 2>/dev/null && echo written; echo done")
		if exit.Code != 0 || out != "done\n" {
			t.Errorf("%q %+v", out, exit)
		}
		if _, err := os.Stat(filepath.Join(cache, "masks", "note")); err == nil {
			t.Error("a command has written a note")
		}
	}, Bwrap, Landlock)
}
