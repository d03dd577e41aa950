package main

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// The columns of topHead that give way where a terminal is narrow, and the last one that never does.
const (
	topWorker, topWaits, topModel, topTokens, topSession = 0, 3, 4, 6, 9

	goodCell, leastCell = 16, 9 // of what is waited for, and of a model: with a column more, and at all
	gap                 = 2     // between two columns
)

// fitted is a table of workers, its head first, for a terminal of so many columns. Where it is wider, ids are cut, then what is waited for and models, and the
// last columns are left out whole: a number of which the end is cut is another one.
func fitted(rows [][]string, width int) [][]string {
	if across(rows) <= width {
		return rows
	}
	for n := topSession + 1; ; n-- {
		least := goodCell
		if n == topTokens+1 {
			least = leastCell
		}
		if out := cutTo(rows, n, least, width); n == topTokens+1 || across(out) <= width {
			return out
		}
	}
}

// cutTo is the first n columns of a table, which is cut until it fits, or what may be is as short as it may be.
func cutTo(rows [][]string, n, least, width int) [][]string {
	out := make([][]string, len(rows))
	for i, row := range rows {
		row = slices.Clone(row)
		row[topWorker], row[topSession] = shortID(row[topWorker]), shortID(row[topSession])
		out[i] = row[:n]
	}
	for across(out) > width {
		wide := topWaits
		if broadest(out, topModel) > broadest(out, topWaits) {
			wide = topModel
		}
		most := broadest(out, wide) - 1
		if most < least {
			break
		}
		for _, row := range out {
			row[wide] = oneLine(row[wide], most)
		}
	}
	return out
}

// shortID is an id by its kind and its end: it begins with the time, which those that were made together share. With -o json it is whole.
func shortID(id string) string {
	const end = 8
	if kind, rest, ok := strings.Cut(id, "_"); ok && len(rest) > end+1 {
		return kind + "_…" + rest[len(rest)-end:]
	}
	return id
}

// across is how wide a table is.
func across(rows [][]string) (width int) {
	for i := range rows[0] {
		width += broadest(rows, i)
	}
	return width + gap*(len(rows[0])-1)
}

// broadest is how wide a column is.
func broadest(rows [][]string, column int) (width int) {
	for _, row := range rows {
		width = max(width, utf8.RuneCountInString(row[column]))
	}
	return width
}
