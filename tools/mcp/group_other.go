//go:build !unix

package mcp

import "os/exec"

func ownGroup(*exec.Cmd) {}

// killGroup kills the server's own process; how its children end is up to them.
func killGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
