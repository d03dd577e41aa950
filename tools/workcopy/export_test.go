package workcopy

import "context"

// Plan writes the plan of an apply down, and is killed then.
func (c *Copies) Plan(ctx context.Context, folder, dir string) error {
	x, err := compare(ctx, folder, dir)
	if err != nil {
		return err
	}
	defer x.close()
	all, err := x.steps()
	if err != nil {
		return err
	}
	return x.write(folder, dir, all)
}

// Hold takes the turn at a copy.
func (c *Copies) Hold(ctx context.Context, dir string) (func(), error) { return c.turns.take(ctx, dir) }

// Known counts the copies that somebody has or waits for.
func (c *Copies) Known() int {
	c.turns.mu.Lock()
	defer c.turns.mu.Unlock()
	return len(c.turns.all)
}
