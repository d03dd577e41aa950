package chaos

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"path/filepath"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe"
	"github.com/troupe-dev/troupe/messages"
	"github.com/troupe-dev/troupe/model/openai"
	"github.com/troupe-dev/troupe/persistence"
)

// lifeConfig is what one life of a runtime needs to know.
type lifeConfig struct {
	Lane  int    `json:"lane"`
	Life  int    `json:"life"`
	Mode  Mode   `json:"mode"`
	Seed  uint64 `json:"seed"`
	Data  string `json:"data"`
	Log   string `json:"log"`  // the effect log
	Cuts  string `json:"cuts"` // what was cut in mode Every
	Model string `json:"model"`
	Room  int    `json:"room,omitempty"` // for so many sessions in memory; 0: for all
}

// laneFiles are the places of one lane below its folder: what is in data dies and recovers, the rest
// outlives it.
func laneFiles(dir string) lifeConfig {
	return lifeConfig{Data: filepath.Join(dir, "data"), Log: filepath.Join(dir, "effects.log"), Cuts: filepath.Join(dir, "cuts")}
}

// node is how a client reaches a runtime: in the same process, or over its socket.
type node interface {
	Ask(ctx context.Context, m proto.Message) (proto.Message, error)
	Events(ctx context.Context, session string, after uint64) iter.Seq2[*messages.Event, error]
}

// life is a runtime from its start to its end.
type life interface {
	node
	// Person is another connection, for who answers approvals.
	Person(ctx context.Context) (node, error)
	// Over is closed when the life has ended, however.
	Over() <-chan struct{}
	// Kill ends it as the kernel does.
	Kill()
	// Close ends it in order, and waits.
	Close(ctx context.Context) error
	// End says how it ended, once it is over.
	End() ending
}

// ending is how a life ended.
type ending struct {
	at  moment
	err error // only with byItself: what it said
}

// host begins lives, and shows what they have left.
type host interface {
	Begin(ctx context.Context, c lifeConfig) (life, error)
	// Store opens what is left after the last life. The caller closes it.
	Store(ctx context.Context, c lifeConfig) (persistence.Store, error)
}

// inside is an open runtime with the test tools and the cutter: what a life is, in whatever process.
type inside struct {
	rt      *troupe.Runtime
	cutter  *cutter
	effects *effectLog
	model   *openai.Model
}

// openInside opens a runtime over a store. die is called once, when the plan says that this life ends.
func openInside(ctx context.Context, c lifeConfig, store persistence.Store, log *slog.Logger, die func(string)) (_ *inside, err error) {
	in := &inside{}
	defer func() {
		if err != nil {
			err = errors.Join(err, in.close(ctx))
		}
	}()
	if in.effects, err = openEffects(c.Log); err != nil {
		return nil, err
	}
	if in.cutter, err = newCutter(ctx, c, store, die); err != nil {
		return nil, err
	}
	in.model, err = openai.New(openai.Options{BaseURL: c.Model})
	if err != nil {
		return nil, fmt.Errorf("reach the scripted model: %w", err)
	}
	x := &effector{log: in.effects, boot: store.Boot, at: in.cutter.effect, dispatch: in.cutter.dispatch}
	own, err := x.tools()
	if err != nil {
		return nil, err
	}
	limits := troupe.Limits{Sessions: c.Room}
	if expires(c.Lane) {
		limits.Approval, limits.Hold = expiry, -1
	}
	in.rt, err = troupe.New(ctx, troupe.Options{
		Models: models{in.model}, Agents: agents(c.Lane), Store: &cutStore{store, in.cutter}, DataDir: c.Data, Tools: own, Logger: log, Limits: limits,
		ToolContext: func(_ context.Context, call troupe.Call) (map[any]any, error) {
			return map[any]any{sessionKey{}: call.Session}, nil
		},
	})
	if err != nil {
		return nil, fmt.Errorf("begin life %d: %w", c.Life, err)
	}
	return in, nil
}

func (in *inside) close(ctx context.Context) error {
	var errs []error
	if in.rt != nil {
		errs = append(errs, in.rt.Close(ctx))
	}
	if in.model != nil {
		errs = append(errs, in.model.Close())
	}
	if in.cutter != nil {
		in.cutter.close()
	}
	if in.effects != nil {
		errs = append(errs, in.effects.close())
	}
	return errors.Join(errs...)
}
