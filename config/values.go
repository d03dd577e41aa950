package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes.
type Size int64

// String writes it with the largest unit that divides it: 64MiB, 1500.
func (s Size) String() string {
	for _, u := range []struct {
		name string
		n    Size
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if s != 0 && s%u.n == 0 {
			return strconv.FormatInt(int64(s/u.n), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// ParseSize reads a whole number of bytes with an optional unit: B, KB, MB, GB (powers of 1000),
// KiB, MiB, GiB (powers of 1024). Case does not matter.
func ParseSize(s string) (Size, error) {
	digits := strings.TrimRight(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
	units := map[string]int64{"": 1, "b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
	unit, ok := units[strings.ToLower(strings.TrimSpace(s[len(digits):]))]
	n, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil {
		return 0, fmt.Errorf("%q is no size; write bytes or a unit, for example 64MiB", s)
	}
	if n > math.MaxInt64/unit || n < 0 {
		return 0, fmt.Errorf("size %q is out of range", s)
	}
	return Size(n * unit), nil
}

// USD is an amount in millionths of a US dollar.
type USD int64

// String writes it in dollars without needless zeros: 0.5, 12, 0.000001.
func (u USD) String() string {
	sign := ""
	if u < 0 {
		sign, u = "-", -u
	}
	if u%1_000_000 == 0 {
		return sign + strconv.FormatInt(int64(u/1_000_000), 10)
	}
	return sign + strings.TrimRight(fmt.Sprintf("%d.%06d", u/1_000_000, u%1_000_000), "0")
}

// ParseUSD reads dollars with at most six decimals. It never rounds: money is not a float.
func ParseUSD(s string) (USD, error) {
	whole, frac, dotted := strings.Cut(strings.TrimPrefix(s, "$"), ".")
	bad := fmt.Errorf("%q is no amount in US dollars; write for example 1.50, with at most 6 decimals", s)
	if len(frac) > 6 || dotted && frac == "" || whole == "" {
		return 0, bad
	}
	w, err := strconv.ParseUint(whole, 10, 42)
	if err != nil {
		return 0, bad
	}
	f, err := strconv.ParseUint((frac + "000000")[:6], 10, 32)
	if err != nil {
		return 0, bad
	}
	return USD(w*1_000_000 + f), nil
}

// ParseDuration reads a duration with units: 500ms, 60s, 1h30m, 2d. A number without a unit is
// refused unless it is 0: nobody agrees on the unit.
func ParseDuration(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.ParseInt(days, 10, 16); err == nil {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	}
	d, err := time.ParseDuration(s)
	if err == nil {
		return d, nil
	}
	if _, numErr := strconv.ParseFloat(s, 64); numErr == nil {
		return 0, fmt.Errorf("duration %q has no unit; write for example %ss", s, s)
	}
	return 0, fmt.Errorf("%q is no duration; write for example 500ms, 60s or 1h30m", s)
}

// durationText writes a duration without zero units: 1m rather than 1m0s.
func durationText(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// ParseCount reads a whole number that is not negative; underscores may group its digits.
func ParseCount(s string) (int64, error) {
	n, err := parseInteger(s)
	if err == nil && n < 0 {
		return 0, fmt.Errorf("%s is negative", s)
	}
	return n, err
}

// parseInteger reads a whole number; underscores may group its digits, as YAML allows.
func parseInteger(s string) (int64, error) {
	n, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return 0, fmt.Errorf("number %q is out of range", s)
	}
	if err != nil {
		return 0, fmt.Errorf("%q is no whole number", s)
	}
	return n, nil
}

// parse turns the text of a scalar into the Go value of its kind.
func (k kind) parse(s string) (any, error) {
	switch k {
	case boolean:
		if s != "true" && s != "false" {
			return nil, fmt.Errorf("%q is neither true nor false", s)
		}
		return s == "true", nil
	case integer:
		return parseInteger(s)
	case duration:
		return ParseDuration(s)
	case size:
		return ParseSize(s)
	case usd:
		return ParseUSD(s)
	case secret:
		return NewSecret(s), nil
	case text:
		return s, nil
	case section, mapping, entries, list:
		return nil, fmt.Errorf("%s cannot be written as one value", k)
	}
	return nil, fmt.Errorf("kind %d has no values", k)
}

// number gives the values of ordered kinds on one line, for bounds.
func number(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case time.Duration:
		return int64(v), true
	case Size:
		return int64(v), true
	case USD:
		return int64(v), true
	}
	return 0, false
}
