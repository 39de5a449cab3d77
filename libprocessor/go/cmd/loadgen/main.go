// SPDX-License-Identifier: Apache-2.0

// Command loadgen sends requests to a host and prints their latencies as JSON.
//
//	loadgen --address 127.0.0.1:8500 --requests W2-1.bin --clients 16 --time 10s
//	loadgen --address 127.0.0.1:8501 --over rest --path /v1/models/ranking:predict --rate 2000 …
//
// Without --rate, each client sends its next request after the response to the last one (a closed loop). With --rate, the
// start times of requests do not depend on responses (an open loop), and the latency of a request counts from its start
// time, even if it had to wait for a free client. Clients are threads with their own connections, which do little beside
// the system calls, because they share the machine with the host. SIGINT and SIGTERM end a measurement early. docs/go.md
// describes the output.
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

// headers are the values of --header, "name: value", in their order.
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
	flags.StringVar(&s.address, "address", "127.0.0.1:8500", "`host:port`, or unix:/path")
	flags.StringVar(&s.over, "over", "grpc", "grpc or rest")
	flags.StringVar(&s.path, "path", "/tensorflow.serving.PredictionService/Predict", "gRPC method or URL path")
	flags.StringVar(&s.requests, "requests", "", "`file` of requests, each after its length in 4 bytes, little-endian")
	flags.StringVar(&s.contentType, "content-type", "", "content type over REST; default: JSON, or application/octet-stream for raw requests")
	flags.Var(&s.headers, "header", "`name: value` of a header or metadata; repeatable")
	flags.IntVar(&s.clients, "clients", 1, "maximum number of requests in flight, each on its own connection")
	flags.DurationVar(&s.seconds, "time", 10*time.Second, "duration of the measurement")
	flags.DurationVar(&s.warmup, "warmup", time.Second, "duration of the unmeasured warm-up before it")
	flags.DurationVar(&s.timeout, "timeout", 10*time.Second, "timeout of a request")
	flags.DurationVar(&s.interval, "interval", 0, "also report each interval of this length")
	flags.StringVar(&s.samples, "samples", "", "`file` for the time and latency of every request; docs/go.md describes it")
	flags.Float64Var(&s.rate, "rate", 0, "requests per second of an open loop; 0: closed loop")
	flags.StringVar(&s.arrivals, "arrivals", "poisson", "arrivals of an open loop: poisson or even")
	flags.Uint64Var(&s.seed, "seed", 1, "seed of the random arrivals")
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
		return s, fmt.Errorf("--time, --timeout: expected more than 0; --warmup, --interval, --rate: expected 0 or more")
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
	// A thread for each client, and few garbage collections, which would disturb them.
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
