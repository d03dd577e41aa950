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
