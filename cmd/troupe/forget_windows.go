package main

import "golang.org/x/sys/windows"

// forgetTyped drops what was typed on a console and not read: what is typed before a question stands there is no answer to it.
func forgetTyped(fd uintptr) { _ = windows.FlushConsoleInputBuffer(windows.Handle(fd)) } // of no console: there is nothing to drop
