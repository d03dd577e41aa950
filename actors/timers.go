package actors

import (
	"github.com/troupe-dev/troupe/persistence"
)

func (p *Copying) timers() []persistence.TimerOp { return nil }
