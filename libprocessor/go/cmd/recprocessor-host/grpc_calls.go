// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/recprocessor/recprocessor/libprocessor/go/processor"
)

// unary handles a method with one request and one response. To gRPC it is a stream of one, where a call that is closed
// without a request fails with a reason.
func (s *grpcServer) unary(what operation) grpc.StreamHandler {
	return s.single(func(ctx context.Context, header metadata.MD, data []byte) (any, metadata.MD, error) {
		answer, err := s.answer(ctx, what, header, data)
		trailer := trailerOf(answer, err)
		if err != nil {
			answer.Free()
			return nil, trailer, grpcStatus(err)
		}
		return answer, trailer, nil
	})
}

type singleHandler = func(ctx context.Context, header metadata.MD, data []byte) (any, metadata.MD, error)

// single takes the one request of a call, if it comes in time, and sends the response.
func (s *grpcServer) single(handle singleHandler) grpc.StreamHandler {
	return func(_ any, stream grpc.ServerStream) error {
		ctx := stream.Context()
		raw := rawRequest{}
		if err := stream.RecvMsg(&raw); err != nil {
			return err
		}
		defer raw.free()
		begun, _ := ctx.Value(begunKey{}).(*begunCall)
		begun.timer.Stop()
		if s.inFlight.Add(1) > mostCalls {
			s.inFlight.Add(-1)
			return status.Errorf(codes.ResourceExhausted, "host: %d calls are in flight, expected no more", mostCalls)
		}
		defer s.inFlight.Add(-1)
		response, trailer, err := handle(ctx, begun.header, raw.bytes())
		stream.SetTrailer(trailer)
		if err != nil {
			return err
		}
		return stream.SendMsg(response)
	}
}

// begunCall is the context of a call that has still to bring its request.
type begunCall struct {
	context.Context
	header metadata.MD
	timer  *time.Timer
	late   atomic.Bool
}

type begunKey struct{}

// Value implements context.Context.
func (c *begunCall) Value(key any) any {
	if key == (begunKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// Err implements context.Context.
func (c *begunCall) Err() error {
	if c.late.Load() {
		return context.DeadlineExceeded
	}
	return c.Context.Err()
}

// begin limits how long a call may keep the host waiting for its request.
func (s *grpcServer) begin(ctx context.Context, info *tap.Info) (context.Context, error) {
	if !s.singles[info.FullMethodName] {
		return ctx, nil
	}
	inner, cancel := context.WithCancel(ctx)
	call := &begunCall{Context: inner, header: info.Header}
	call.timer = time.AfterFunc(s.readTime, func() {
		call.late.Store(true)
		cancel()
	})
	return call, nil
}

// answer hands a message and what goes along with it to the library.
func (s *grpcServer) answer(ctx context.Context, what operation, header metadata.MD, data []byte) (*processor.Answer, error) {
	request := processor.HostRequest{Protocol: what.protocol, Method: what.method, Data: data}
	var pairs [2]processor.Pair
	request.Metadata = pairs[:0]
	for _, key := range [...]string{routingKey, traceParent} {
		if values := header[key]; len(values) > 0 {
			request.Metadata = append(request.Metadata, processor.Pair{Key: key, Value: values[len(values)-1]})
		}
	}
	if values := header[priority]; len(values) > 0 {
		var err error
		if request.Priority, err = parsePriority(values[len(values)-1]); err != nil {
			return nil, err
		}
	}
	return s.host.Process(ctx, &request)
}

// trailerOf tells who answered or refused, and when who was refused may come again.
func trailerOf(answer *processor.Answer, err error) metadata.MD {
	trailer := make(metadata.MD, 8)
	provenance(answer, func(name, value string) { trailer[name] = []string{value} })
	if err != nil && answer != nil && answer.RetryAfter > 0 {
		trailer["grpc-retry-pushback-ms"] = []string{strconv.FormatInt(roundUp(answer.RetryAfter, time.Millisecond), 10)}
	}
	return trailer
}
