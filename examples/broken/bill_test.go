package bill

import (
	"slices"
	"testing"
)

func TestEvenSplit(t *testing.T) {
	if got, want := Split(900, 3), []int{300, 300, 300}; !slices.Equal(got, want) {
		t.Errorf("Split(900, 3) = %v, want %v", got, want)
	}
}

func TestUnevenSplit(t *testing.T) {
	if got, want := Split(1000, 3), []int{334, 333, 333}; !slices.Equal(got, want) {
		t.Errorf("Split(1000, 3) = %v, want %v", got, want)
	}
}

func TestNobodyToPay(t *testing.T) {
	if got := Split(1000, 0); len(got) != 0 {
		t.Errorf("Split(1000, 0) = %v, want no shares", got)
	}
}
