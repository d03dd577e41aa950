package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/messages"
)

func newListRuns(a *app) *cobra.Command {
	l := &listing{
		head:  []string{"RUN", "STATE", "PIPELINE", "STEPS", "ITEMS", "STARTED", "SESSION", "WAITS FOR"},
		empty: "there are no runs yet; begin one with: troupe pipeline run FILE",
	}
	return formats(&cobra.Command{
		Use:   "runs",
		Short: "List the runs of pipelines, the newest first",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return l.print(cmd.Context(), a, func(ctx context.Context, n node) (any, [][]string, error) {
				found, err := ask[*messages.Runs](ctx, n, &messages.ListRuns{})
				if err != nil {
					return nil, nil, err
				}
				rows := [][]string{}
				for _, v := range found.JSON() {
					name := v.Name
					if v.Scripted {
						name += " (script)"
					}
					rows = append(rows, []string{
						v.ID, v.State, name, fmt.Sprintf("%d/%d", v.StepsDone, v.Steps), fmt.Sprintf("%d/%d", v.ItemsDone, v.Items), v.StartedAt, v.Session, waitsShort(v.Waiting),
					})
				}
				return found.JSON(), rows, nil
			})
		},
	}, "table", "json", "yaml")
}

// waitsShort is what something waits for, and what a person may type.
func waitsShort(on *messages.WaitingJSON) string {
	switch {
	case on == nil:
		return ""
	case on.Command == "":
		return oneLine(on.Text, 60)
	}
	return oneLine(on.Text, 60) + ": " + on.Command
}

// showRun is `troupe show` of a run.
func (a *app) showRun(ctx context.Context, n node, id string) error {
	v, err := ask[*messages.RunView](ctx, n, &messages.ShowRun{RunId: id})
	if err != nil {
		return err
	}
	j := v.JSON()
	return a.emit(j, func(w io.Writer) error {
		rows := [][]string{{"state", j.State}, {"pipeline", j.Name}, {"session", j.Session}, {"started", j.StartedAt}, {"usage", usageText(j.Usage)}}
		if j.Scripted {
			rows = append(rows, []string{"answers", "of a script or a recording: no language model is running"})
		}
		if j.Error != "" {
			rows = append(rows, []string{"error", j.Error})
		}
		if j.UsageGone != nil {
			rows = append(rows, []string{"of that", usageText(*j.UsageGone) + " of steps that its file has no more"})
		}
		for _, s := range j.StepList {
			line := s.State
			if s.Total > 1 {
				line += fmt.Sprintf(", %d of %d done, %d failed", s.Done, s.Total, s.Fails)
			}
			if s.Budget != nil {
				line += ", " + budgetText(s.Budget)
			}
			for _, i := range s.Items {
				switch {
				case i.Waiting != nil:
					line += ", waits for " + waitsShort(i.Waiting)
				case i.Approval != "":
					line += ", waits for approval " + i.Approval
				}
			}
			if s.Error != "" {
				line += ": " + oneLine(s.Error, 120)
			}
			rows = append(rows, []string{"step " + s.Step, line})
		}
		if len(j.Outputs) > 0 {
			rows = append(rows, []string{"outputs", string(j.Outputs)})
		}
		return table(w, []string{"run", j.ID}, rows)
	})
}
