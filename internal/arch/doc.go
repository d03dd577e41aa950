// Package arch holds the plan of the house as tests: which package may import which, which
// library may be known where, what a reader is promised to find. It has no code of its own.
//
// A red test here is answered by moving code, or by changing table_test.go in the same commit
// with the reason in its message; never by an exception inside a check.
package arch
