package build

// Call is what a tool, or another pipeline, is given.
type Call struct {
	Rules

	Args map[string]any // values of the run, and Texts; of a pipeline its inputs

	Until    Ref[bool] // it is done again until this holds, of This and Last; the zero value: once. Not together with a list
	MaxTimes int       // at most; 0: 10

	Key         Value // of a list: what tells the items apart; nil: a short text itself, of an object its id, key, name or path, else their place
	Concurrency int   // of a list: items under way at once
	Quorum      int   // of a list: how many have to succeed; 0: all, or with Continue any
}

// ToolUntil calls a tool again and again until Call.Until holds.
func ToolUntil(p *Pipeline, id, tool string, c Call) *Step[string] {
	return called[string](p, &stepDoc{ID: id, Tool: tool}, c, expression{})
}

// ToolEach calls a tool once for each item of a list.
func ToolEach[I any](p *Pipeline, id, tool string, list Ref[[]I], each func(item Ref[I]) Call) *Step[[]string] {
	var uses expression
	d := &stepDoc{ID: id, Tool: tool, ForEach: uses.use(list)}
	return called[[]string](p, d, itemOf(p, id, each), uses)
}

// RunUntil runs another pipeline again and again until Call.Until holds of its outputs.
func RunUntil(p *Pipeline, id string, other *Pipeline, c Call) *Step[map[string]any] {
	return called[map[string]any](p, &stepDoc{ID: id, Nested: p.runs(id, other)}, c, expression{})
}

// RunEach runs another pipeline once for each item of a list.
func RunEach[I any](p *Pipeline, id string, other *Pipeline, list Ref[[]I], each func(item Ref[I]) Call) *Step[[]map[string]any] {
	var uses expression
	d := &stepDoc{ID: id, Nested: p.runs(id, other), ForEach: uses.use(list)}
	return called[[]map[string]any](p, d, itemOf(p, id, each), uses)
}

func called[Out any](p *Pipeline, d *stepDoc, c Call, uses expression) *Step[Out] {
	d.With, _ = uses.tree(c.Args).(map[string]any)
	if c.Until.set() {
		d.Repeat = &repeatDoc{Until: uses.use(c.Until), Max: c.MaxTimes}
	}
	if c.Key != nil {
		d.Key = uses.use(c.Key)
	}
	d.Concurrency, d.Quorum = c.Concurrency, c.Quorum
	return finish[Out](p, d, c.Rules, uses)
}

// Index is the place of an item, from 0, in what it is asked.
func Index() Ref[int] { return Ref[int]{src: "index"} }

// Key is what tells an item from others.
func Key() Ref[string] { return Ref[string]{src: "key"} }

// RunID and RunName are those of the run.
func RunID() Ref[string] { return Ref[string]{src: "run.id"} }

// RunName is the name of the pipeline.
func RunName() Ref[string] { return Ref[string]{src: "run.name"} }

// Read is the text of a file of the run's folder.
func Read(path Ref[string]) Ref[string] { return Expr[string]("read(%s)", path) }
