// Package pipeline reads, checks and plans pipelines: files that say which agents do what after what.
// It is pure. Parse gives a Plan whose every expression and reference is known to fit; State folds the
// facts of a run; Decide says which facts come next, and Settle what an answer makes of its item. Whoever runs
// it appends those facts before it acts on them, so that a run cut at any record goes on from there.
package pipeline
