// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/recprocessor/recprocessor/libprocessor/go/processor"
)

type unaryHandler = func(any, context.Context, func(any) error, grpc.UnaryServerInterceptor) (any, error)

// unary handles a method with one request and one response.
func (s *grpcServer) unary(what operation) unaryHandler {
	return func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		if s.inFlight.Add(1) > mostCalls {
			s.inFlight.Add(-1)
			return nil, status.Errorf(codes.ResourceExhausted, "host: %d calls are in flight, expected no more", mostCalls)
		}
		defer s.inFlight.Add(-1)
		raw := rawRequest{}
		if err := decode(&raw); err != nil {
			return nil, err
		}
		defer raw.free()
		answer, err := s.answer(ctx, what, raw.bytes())
		trailer := make(metadata.MD, 8)
		addProvenance(trailer, answer)
		if err != nil {
			addRetry(trailer, answer)
			answer.Free()
		}
		// Fails only when the call has ended, and then nobody is left to be told.
		_ = grpc.SetTrailer(ctx, trailer)
		if err != nil {
			return nil, grpcStatus(err)
		}
		return answer, nil
	}
}

// answer hands a message and what goes along with it to the library.
func (s *grpcServer) answer(ctx context.Context, what operation, data []byte) (*processor.Answer, error) {
	request := processor.HostRequest{Protocol: what.protocol, Method: what.method, Data: data}
	var pairs [2]processor.Pair
	request.Metadata = pairs[:0]
	for _, key := range [...]string{routingKey, traceParent} {
		if values := metadata.ValueFromIncomingContext(ctx, key); len(values) > 0 {
			request.Metadata = append(request.Metadata, processor.Pair{Key: key, Value: values[len(values)-1]})
		}
	}
	if values := metadata.ValueFromIncomingContext(ctx, priority); len(values) > 0 {
		var err error
		if request.Priority, err = parsePriority(values[len(values)-1]); err != nil {
			return nil, err
		}
	}
	return s.host.Process(ctx, &request)
}

func addProvenance(trailer metadata.MD, answer *processor.Answer) {
	provenance(answer, func(name, value string) { trailer[name] = []string{value} })
}

func addRetry(trailer metadata.MD, answer *processor.Answer) {
	if answer != nil && answer.RetryAfter > 0 {
		trailer["grpc-retry-pushback-ms"] = []string{strconv.FormatInt(roundUp(answer.RetryAfter, time.Millisecond), 10)}
	}
}
