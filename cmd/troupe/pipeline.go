package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-dev/troupe/config"
	"github.com/troupe-dev/troupe/pipeline"
)

// newPipeline is `troupe pipeline`.
func newPipeline(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "pipeline", Short: "Work of several agents, as a file says: check it, look at it, run it"}
	cmd.AddCommand(newPipelineValidate(a), newPipelinePlan(a), newPipelineGraph(a), newPipelineRun(a))
	return cmd
}

// planned is what `pipeline validate` and `pipeline plan` print.
type planned struct {
	Name    string     `json:"name"`
	Valid   bool       `json:"valid"`
	Hash    string     `json:"plan_hash"`
	Files   []string   `json:"files"`
	Inputs  []string   `json:"inputs"`
	Waves   [][]string `json:"waves"`
	Outputs []string   `json:"outputs"`
}

func newPipelineValidate(a *app) *cobra.Command {
	return formats(&cobra.Command{
		Use:   "validate FILE",
		Short: "Check a pipeline: every key, expression and reference; exit 65 if something is wrong",
		Args:  exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := a.plan(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			for _, note := range p.Root.Overdrawn() {
				a.note("troupe: %s: %s", visible(args[0]), note)
			}
			return a.emit(planOf(p), func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "valid: %s (%s, %d steps)\n", visible(args[0]), p.Root.Name, len(p.Root.Steps))
				return err
			})
		},
	}, "text", "json", "yaml")
}

func newPipelinePlan(a *app) *cobra.Command {
	return formats(&cobra.Command{
		Use:   "plan FILE",
		Short: "Print the steps of a pipeline in waves: what can run at the same time",
		Args:  exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := a.plan(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			for _, note := range p.Root.Overdrawn() {
				a.note("troupe: %s: %s", visible(args[0]), note)
			}
			return a.emit(planOf(p), func(w io.Writer) error {
				for i, wave := range p.Root.Waves() {
					if _, err := fmt.Fprintf(w, "wave %d\n", i+1); err != nil {
						return err
					}
					for _, st := range wave {
						if _, err := fmt.Fprintf(w, "  %s: %s\n", st.ID, visible(st.Does())); err != nil {
							return err
						}
					}
				}
				return nil
			})
		},
	}, "text", "json", "yaml")
}

func newPipelineGraph(a *app) *cobra.Command {
	return formats(&cobra.Command{
		Use:   "graph FILE",
		Short: "Print the graph of a pipeline, for Mermaid",
		Args:  exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := a.plan(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.say(strings.TrimSuffix(p.Root.Mermaid(), "\n"))
		},
	}, "text")
}

// plan reads a pipeline's file, and those that it runs, against the configuration.
func (a *app) plan(ctx context.Context, file string) (*pipeline.Plan, error) {
	loaded, err := a.load("")
	if err != nil {
		return nil, err
	}
	text, err := given(ctx, file, pipeline.MaxFile)
	if err != nil {
		return nil, err
	}
	return pipeline.Parse(filepath.ToSlash(file), string(text), a.known(loaded))
}

// known is what pipelines may name besides what they hold themselves. What a server has only it knows: it checks them, too.
func (a *app) known(loaded *config.Loaded) pipeline.Options {
	o := pipeline.Options{Load: func(name string) ([]byte, error) {
		return besideFile(filepath.FromSlash(path.Clean(name)), pipeline.MaxFile)
	}}
	if loaded.Config.Server.URL != "" {
		return o
	}
	schemas := make(map[string][]byte)
	for _, t := range builtin() {
		if spec := t.Spec(); !loaded.Config.Tools[spec.Name].Disabled {
			schemas[spec.Name] = spec.Schema
		}
	}
	o.Agents, o.Tools = append(slices.Collect(maps.Keys(loaded.Config.Agents)), "default"), slices.Collect(maps.Keys(schemas))
	o.Server = func(name string) bool { return ofServer(loaded.Config, name) }
	o.Takes = func(tool string) []byte { return schemas[tool] }
	o.Model = func(name string) (what, fix string) {
		var unknown *config.UnknownModelError
		if _, err := loaded.Config.Resolve(name); errors.As(err, &unknown) {
			what, fix, _ = strings.Cut(unknown.Error(), "; ")
		}
		return what, fix
	}
	return o
}

func planOf(p *pipeline.Plan) planned {
	out := planned{
		Name: p.Root.Name, Valid: true, Hash: hex.EncodeToString(p.Hash), Files: []string{}, Inputs: []string{}, Waves: [][]string{}, Outputs: []string{},
	}
	for _, s := range p.Sources {
		out.Files = append(out.Files, s.GetPath())
	}
	for _, in := range p.Root.Inputs {
		out.Inputs = append(out.Inputs, in.Name)
	}
	for _, wave := range p.Root.Waves() {
		var ids []string
		for _, st := range wave {
			ids = append(ids, st.ID)
		}
		out.Waves = append(out.Waves, ids)
	}
	for _, o := range p.Root.Outputs {
		out.Outputs = append(out.Outputs, o.Name)
	}
	return out
}
