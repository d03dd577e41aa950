//go:build unix

package gitclone

import (
	"os/exec"
	"syscall"
)

// ownGroup makes the programs that git starts end with it.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
