// Package messages is the vocabulary of the house: every word that two actors, two nodes or a process
// and its journal say to each other. The *.proto files are the source; beside the generated Go stand the
// few plain values that go with them: prompts, events in their wire form, ids, refusals.
//
// Commands are imperative, facts past tense. Numbers are never reused: old journals are read by
// them.
package messages
