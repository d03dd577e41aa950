package attacks

import "errors"

func makeSpecial(string, string) error { return errors.ErrUnsupported }
