// SPDX-License-Identifier: Apache-2.0

// Command grpc-example serves models over gRPC, in the protocol of TensorFlow Serving: a client of its
// PredictionService/Predict finds the same messages and status codes here. The bytes of requests and responses pass
// through; libprocessor.so reads and writes them.
//
//	grpc-example --model ranking=/models/ranking/7 --listen 127.0.0.1:8500
//
// It serves plain text on the loopback address unless told otherwise: put TLS in front of it, or into serverOptions.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/recprocessor/recprocessor/libprocessor/go/processor"
)

type settings struct {
	models        modelFlags
	config        string
	listen        string
	async         bool
	maxInFlight   int64
	maxMessage    int
	shutdownDelay time.Duration
	drainTimeout  time.Duration
}

// modelFlags are the values of --model, name=path, in the order given.
type modelFlags []struct{ name, path string }

func (m *modelFlags) String() string { return "" }

func (m *modelFlags) Set(value string) error {
	name, path, found := strings.Cut(value, "=")
	if !found || name == "" || path == "" {
		return fmt.Errorf("expected name=path")
	}
	for _, other := range *m {
		if other.name == name {
			return fmt.Errorf("model %q is given twice", name)
		}
	}
	*m = append(*m, struct{ name, path string }{name, path})
	return nil
}

func parseFlags(arguments []string) (settings, error) {
	s := settings{}
	flags := flag.NewFlagSet("grpc-example", flag.ContinueOnError)
	flags.Var(&s.models, "model", "`name=path` of a SavedModel folder; may be given several times")
	flags.StringVar(&s.config, "config", "", "`JSON` configuration of every model; default: a session per CPU")
	flags.StringVar(&s.listen, "listen", "127.0.0.1:8500", "`address` to listen on; port 0 takes a free one")
	flags.BoolVar(&s.async, "async", false, "queue requests in the library instead of in Go")
	flags.Int64Var(&s.maxInFlight, "max-in-flight", 4096, "requests held at once; one more is refused")
	flags.IntVar(&s.maxMessage, "max-message-bytes", math.MaxInt32, "largest request and response")
	flags.DurationVar(&s.shutdownDelay, "shutdown-delay", 0, "time between \"not ready\" and the end of listening")
	flags.DurationVar(&s.drainTimeout, "drain-timeout", 30*time.Second, "time that running requests get at the end")
	if err := flags.Parse(arguments); err != nil {
		return s, err
	}
	switch {
	case len(s.models) == 0:
		return s, fmt.Errorf("--model: none given, expected at least one name=path")
	case flags.NArg() > 0:
		return s, fmt.Errorf("argument %q: expected flags only", flags.Arg(0))
	case s.maxInFlight < 1 || s.maxMessage < 1:
		return s, fmt.Errorf("--max-in-flight and --max-message-bytes: expected positive numbers")
	}
	return s, nil
}

// modelConfig is the configuration of one model. By default every CPU runs one request at a time. LEAST_LOADED, because
// MOD goes by OS threads, which say nothing about goroutines.
func modelConfig(text, name string) (processor.Config, error) {
	config := processor.Config{
		"session_num":                  runtime.NumCPU(),
		"select_session_policy":        "LEAST_LOADED",
		"intra_op_parallelism_threads": 1,
		"inter_op_parallelism_threads": 1,
	}
	if text != "" {
		config = nil
		if err := json.Unmarshal([]byte(text), &config); err != nil || config == nil {
			return nil, fmt.Errorf("--config: %q is not a JSON object", text)
		}
	}
	if _, ok := config["model_name"]; !ok {
		config["model_name"] = name
	}
	return config, nil
}

func loadModels(s settings) (map[string]*processor.Model, error) {
	dispatch := processor.Auto
	if s.async {
		dispatch = processor.Async
	}
	models := make(map[string]*processor.Model)
	for _, wanted := range s.models {
		config, err := modelConfig(s.config, wanted.name)
		if err != nil {
			return models, err
		}
		begin := time.Now()
		model, err := processor.Load(wanted.path, config, processor.WithDispatch(dispatch))
		if err != nil {
			return models, fmt.Errorf("model %q at %s: %w", wanted.name, wanted.path, err)
		}
		models[wanted.name] = model
		slog.Info("model is ready", "name", wanted.name, "path", wanted.path, "seconds", time.Since(begin).Seconds())
	}
	return models, nil
}

func run(arguments []string) error {
	s, err := parseFlags(arguments)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	models, err := loadModels(s)
	defer func() {
		for _, model := range models {
			model.Close()
		}
	}()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", s.listen)
	if err != nil {
		return err
	}
	server := newServer(s, models)
	failed := make(chan error, 1)
	go func() { failed <- server.grpc.Serve(listener) }()
	fmt.Printf("listening on %s\n", listener.Addr())

	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	stop() // a second signal ends the process at once
	server.shutDown(s.shutdownDelay, s.drainTimeout)
	return nil
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		if err != flag.ErrHelp {
			fmt.Fprintf(os.Stderr, "grpc-example: %v\n", err)
			os.Exit(1)
		}
	}
}
