//go:build unix

package mcp

import (
	"os/exec"
	"syscall"
)

// ownGroup keeps the terminal's interrupts from a server, and lets all of its processes be found.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup kills what is left of the server's processes; mostly nothing is.
func killGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
