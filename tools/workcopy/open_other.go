//go:build !unix

package workcopy

const openFlags = 0
