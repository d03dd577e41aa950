// Package bill splits what a dinner cost among those who ate it.
package bill

// Split divides total cents among n people. The shares add up to total and differ by at most
// one cent: where it does not divide evenly, those who come first pay a cent more. Without
// people there are no shares.
func Split(total, n int) []int {
	if n <= 0 {
		return nil
	}
	shares := make([]int, n)
	for i := range shares {
		shares[i] = total / n
	}
	return shares
}
