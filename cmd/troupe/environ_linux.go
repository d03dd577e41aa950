package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/troupe-dev/troupe/config"
)

// blankEnviron overwrites secrets in the block of variables that the kernel gave this process, which
// /proc/PID/environ shows as long as the process lives, whatever os.Unsetenv does. What the process
// itself reads as its environment is a copy. It must come before the process hides its memory.
func blankEnviron(secrets ...config.Secret) error {
	start, end, err := environBlock()
	if err != nil || start >= end {
		return err
	}
	mem, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("open the process's memory: %w", err)
	}
	defer mem.Close()
	block := make([]byte, end-start)
	if _, err := mem.ReadAt(block, start); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the process's variables: %w", err)
	}
	for _, s := range secrets {
		value := []byte(s.Reveal())
		for at := 0; len(value) >= 4; at += len(value) {
			i := bytes.Index(block[at:], value)
			if i < 0 {
				break
			}
			at += i
			if _, err := mem.WriteAt(bytes.Repeat([]byte("*"), len(value)), start+int64(at)); err != nil {
				return fmt.Errorf("overwrite the process's variables: %w", err)
			}
		}
	}
	return nil
}

// environBlock gives where the block begins and ends, from fields 50 and 51 of /proc/self/stat.
func environBlock() (start, end int64, err error) {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0, 0, fmt.Errorf("find the process's variables: %w", err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // from field 3 on
	if len(fields) < 49 {
		return 0, 0, errors.New("find the process's variables: the kernel does not tell")
	}
	if start, err = strconv.ParseInt(fields[47], 10, 64); err == nil {
		end, err = strconv.ParseInt(fields[48], 10, 64)
	}
	if err != nil || end-start > 64<<20 {
		return 0, 0, errors.New("find the process's variables: the kernel does not tell")
	}
	return start, end, nil
}
