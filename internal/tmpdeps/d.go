package tmpdeps

import (
	_ "github.com/asynkron/protoactor-go/actor"
	_ "github.com/asynkron/protoactor-go/persistence"
	_ "github.com/creack/pty"
	_ "github.com/dgraph-io/badger/v4"
	_ "github.com/goccy/go-yaml"
	_ "github.com/google/uuid"
	_ "github.com/oklog/run"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "github.com/sashabaranov/go-openai"
	_ "github.com/spf13/cobra"
	_ "github.com/spf13/viper"
	_ "go.uber.org/goleak"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/term"
	_ "google.golang.org/protobuf/proto"
	_ "pgregory.net/rapid"
)
