package main

import "golang.org/x/sys/windows"

// forgetTyped drops what was typed on a console and not read.
func forgetTyped(fd uintptr) { _ = windows.FlushConsoleInputBuffer(windows.Handle(fd)) } // of no console: there is nothing to drop
