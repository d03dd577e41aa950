//go:build !linux

package sandbox

func attackFrom(string) {}
