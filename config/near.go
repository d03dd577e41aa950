package config

import "github.com/troupe-dev/troupe/internal/yamldoc"

// Near gives the candidates that a person who wrote word probably meant, at most three, all
// equally near. Case does not count; a typo in three letters is too many.
func Near(word string, candidates []string) []string { return yamldoc.Near(word, candidates) }

func didYouMean(word string, candidates []string) string { return yamldoc.DidYouMean(word, candidates) }

func quoteAll(words []string, sep string) string { return yamldoc.QuoteAll(words, sep) }
