// SPDX-License-Identifier: Apache-2.0

// Command loadgen sends requests to a host and says how long they took, as JSON.
//
//	loadgen --address 127.0.0.1:8500 --requests W2-1.bin --clients 16 --time 10s
//	loadgen --address 127.0.0.1:8501 --over rest --path /v1/models/ranking:predict --rate 2000 …
//
// Without --rate each client sends its next request when the last is answered (a closed loop). With it, requests have
// start times that do not depend on answers (an open loop), and a request that had to wait for a free client counts from
// when it should have been sent. Clients are threads with connections of their own that do little beside the system
// calls, since they share the machine with the host. SIGINT and SIGTERM end a measurement early. docs/go.md describes the
// output.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"
)

type settings struct {
	address, over, path, requests, arrivals, contentType, samples string
	headers                                                       headers
	clients                                                       int
	seconds, warmup, timeout, interval                            time.Duration
	rate                                                          float64
	seed                                                          uint64
}

// headers are the values of --header, "name: value", in the order given.
type headers []header

type header struct{ name, value string }

func (h *headers) String() string { return "" }

func (h *headers) Set(text string) error {
	name, value, found := strings.Cut(text, ":")
	if !found || name == "" {
		return fmt.Errorf("expected name: value")
	}
	*h = append(*h, header{strings.ToLower(strings.TrimSpace(name)), strings.TrimSpace(value)})
	return nil
}

func parseFlags(arguments []string) (settings, error) {
	s := settings{}
	flags := flag.NewFlagSet("loadgen", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // what is wrong is returned
	flags.StringVar(&s.address, "address", "127.0.0.1:8500", "`host:port`")
	flags.StringVar(&s.over, "over", "grpc", "grpc or rest")
	flags.StringVar(&s.path, "path", "/tensorflow.serving.PredictionService/Predict", "gRPC method or URL path")
	flags.StringVar(&s.requests, "requests", "", "`file` of requests, each after its length in 4 bytes, little-endian")
	flags.StringVar(&s.contentType, "content-type", "", "of REST; default: JSON, for raw requests application/octet-stream")
	flags.Var(&s.headers, "header", "`name: value` to go along; may be given several times")
	flags.IntVar(&s.clients, "clients", 1, "requests in flight at most, each on a connection of its own")
	flags.DurationVar(&s.seconds, "time", 10*time.Second, "how long to measure")
	flags.DurationVar(&s.warmup, "warmup", time.Second, "how long to send before, unmeasured")
	flags.DurationVar(&s.timeout, "timeout", 10*time.Second, "of a request")
	flags.DurationVar(&s.interval, "interval", 0, "also report so long intervals one by one")
	flags.StringVar(&s.samples, "samples", "", "`file` to write every request to, as docs/go.md says")
	flags.Float64Var(&s.rate, "rate", 0, "requests/s of an open loop; 0: closed loop")
	flags.StringVar(&s.arrivals, "arrivals", "poisson", "of an open loop: poisson or even")
	flags.Uint64Var(&s.seed, "seed", 1, "of random arrivals")
	if err := flags.Parse(arguments); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			flags.SetOutput(os.Stdout)
			flags.PrintDefaults()
		}
		return s, err
	}
	switch {
	case flags.NArg() > 0:
		return s, fmt.Errorf("argument %q: expected flags only", flags.Arg(0))
	case s.over != "grpc" && s.over != "rest":
		return s, fmt.Errorf("--over: %q, expected grpc or rest", s.over)
	case s.arrivals != "poisson" && s.arrivals != "even":
		return s, fmt.Errorf("--arrivals: %q, expected poisson or even", s.arrivals)
	case s.requests == "":
		return s, fmt.Errorf("--requests: none given, expected a file")
	case s.clients < 1 || s.clients > 4096:
		return s, fmt.Errorf("--clients: %d, expected 1 to 4096", s.clients)
	case s.seconds <= 0 || s.warmup < 0 || s.timeout <= 0 || s.interval < 0 || s.rate < 0:
		return s, fmt.Errorf("--time, --timeout: expected more than nothing; --warmup, --interval, --rate: not less")
	}
	if s.contentType == "" {
		s.contentType = "application/json"
		if strings.HasSuffix(s.path, ":eas") || strings.HasPrefix(s.path, "/api/") || s.path == "/" {
			s.contentType = "application/octet-stream"
		}
	}
	return s, nil
}

func run(arguments []string) error {
	s, err := parseFlags(arguments)
	if err != nil {
		return err
	}
	requests, err := readRequests(s.requests)
	if err != nil {
		return err
	}
	// A thread for each client, and no collection that disturbs them.
	runtime.GOMAXPROCS(s.clients + 2)
	debug.SetGCPercent(1000)
	interrupted, release := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer release()
	began, clients, err := measure(s, requests, interrupted.Done())
	if err != nil {
		return err
	}
	if interrupted.Err() != nil {
		s.seconds = max(time.Since(began), time.Millisecond)
	}
	if s.samples != "" {
		if err := writeSamples(s.samples, clients); err != nil {
			return err
		}
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", " ")
	return encoder.Encode(summarize(s, began, clients))
}

func main() {
	if err := run(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "loadgen: %v\n", err)
		os.Exit(1)
	}
}
