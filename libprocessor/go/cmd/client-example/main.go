// SPDX-License-Identifier: Apache-2.0

// Command client-example checks over gRPC whether a model is ready, and then sends it a request.
//
//	client-example --address 127.0.0.1:8500 --model ranking REQUEST RESPONSE
//
// REQUEST is a file with a serialized tensorflow.serving.PredictRequest; the PredictResponse is written to RESPONSE. The
// program prints the trailing metadata, which names the version, as JSON. Programs with generated stubs call the stub
// instead of Invoke.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
)

// rawCodec sends and receives serialized messages without decoding them.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(message any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(message.([]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, message any) error {
	*message.(*[]byte) = data.Materialize()
	return nil
}

func ask(address, model, method, routingKey string, request []byte, timeout time.Duration) ([]byte, error) {
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	health, err := healthpb.NewHealthClient(connection).Check(ctx, &healthpb.HealthCheckRequest{Service: model})
	if err != nil {
		return nil, fmt.Errorf("health of %q: %w", model, err)
	}
	if health.Status != healthpb.HealthCheckResponse_SERVING {
		return nil, fmt.Errorf("health of %q: %v, expected SERVING", model, health.Status)
	}
	if routingKey != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "x-routing-key", routingKey)
	}
	var response []byte
	var trailer metadata.MD
	err = connection.Invoke(ctx, method, request, &response, grpc.ForceCodecV2(rawCodec{}), grpc.Trailer(&trailer))
	if err != nil {
		return nil, err
	}
	return response, json.NewEncoder(os.Stdout).Encode(trailer)
}

func run(arguments []string) error {
	flags := flag.NewFlagSet("client-example", flag.ContinueOnError)
	address := flags.String("address", "127.0.0.1:8500", "`host:port`, or unix:/path")
	model := flags.String("model", "", "model whose health is checked; empty: the whole host")
	method := flags.String("method", "/tensorflow.serving.PredictionService/Predict", "gRPC `path`")
	routingKey := flags.String("routing-key", "", "key that selects the arm of an experiment")
	timeout := flags.Duration("timeout", 10*time.Second, "timeout of the whole program")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if flags.NArg() != 2 {
		return errors.New("usage: client-example [flags] REQUEST RESPONSE")
	}
	request, err := os.ReadFile(flags.Arg(0))
	if err != nil {
		return err
	}
	response, err := ask(*address, *model, *method, *routingKey, request, *timeout)
	if err != nil {
		return err
	}
	return os.WriteFile(flags.Arg(1), response, 0o644)
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "client-example: %v\n", err)
		os.Exit(1)
	}
}
