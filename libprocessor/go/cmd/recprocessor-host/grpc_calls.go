// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/recprocessor/recprocessor/libprocessor/go/processor"
)

// unary handles a method with one request and one response. To gRPC it is a stream that the client
// sends, of which the first message counts: a call that is closed without one fails with a reason.
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

// single receives the one request of a call, if it arrives in time, and sends the response.
func (s *grpcServer) single(handle singleHandler) grpc.StreamHandler {
	return func(_ any, stream grpc.ServerStream) error {
		ctx := stream.Context()
		begun, _ := ctx.Value(begunKey{}).(*begunCall)
		defer begun.end()
		raw := &rawRequest{}
		// Also if the request is complete but the call is not.
		defer raw.free()
		if err := s.receive(stream, begun, raw); err != nil {
			return err
		}
		if err := raw.unpack(s.most); err != nil {
			stream.SetTrailer(trailerOf(nil, err))
			return grpcStatus(err)
		}
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

// begunCall is the context of a call.
type begunCall struct {
	context.Context
	end     context.CancelFunc
	header  metadata.MD
	arrival arrival
}

// receive waits for the request or the refusal of the call.
func (s *grpcServer) receive(stream grpc.ServerStream, call *begunCall, request *rawRequest) error {
	err := s.arrivals.receive(stream, &call.arrival, request)
	if errors.Is(err, io.EOF) {
		return status.Error(codes.InvalidArgument, "request: none came, expected one message")
	}
	return err
}

// The longest time by which a context ends before the deadline of its call; usually a twentieth of the time.
const mostDeadlineMargin = 5 * time.Millisecond

// beforeDeadline ends the context of a call just before its deadline, so that the handler still sends its status.
//
// At the deadline, grpc-go resets the stream (CANCEL). A client whose clock, in whole milliseconds, has not passed the
// deadline then reports CANCELLED.
func beforeDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-min(time.Until(deadline)/20, mostDeadlineMargin)))
}

type begunKey struct{}

// Value implements context.Context.
func (c *begunCall) Value(key any) any {
	if key == (begunKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// begin prepares a call with one request.
func (s *grpcServer) begin(ctx context.Context, info *tap.Info) (context.Context, error) {
	if !s.singles[info.FullMethodName] {
		return ctx, nil
	}
	ctx, end := beforeDeadline(ctx)
	return &begunCall{Context: ctx, end: end, header: info.Header}, nil
}

// answer passes a message and its metadata to the library.
func (s *grpcServer) answer(ctx context.Context, what operation, header metadata.MD, data []byte) (*processor.Answer, error) {
	request := processor.HostRequest{Protocol: what.protocol, Method: what.method, Data: data}
	var pairs [3]processor.Pair
	request.Metadata = pairs[:0]
	for _, key := range [...]string{routingKey, minEpoch, traceParent} {
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

// The number of values that trailerOf usually returns, and one more.
const mostTrailers = 8

// trailerOf returns trailing metadata that names the version that responded, and the time after which a refused client may
// retry.
func trailerOf(answer *processor.Answer, err error) metadata.MD {
	trailer, values := make(metadata.MD, mostTrailers), make([]string, 0, mostTrailers)
	provenance(answer, func(name, value string) {
		values = append(values, value)
		trailer[name] = values[len(values)-1 : len(values) : len(values)]
	})
	retry := time.Duration(0)
	if answer != nil {
		retry = answer.RetryAfter
	} else if isOfMemory(err) && processor.CodeOf(err) == processor.ResourceExhausted {
		retry = crowdedRetry
	}
	if err != nil && retry > 0 {
		trailer["grpc-retry-pushback-ms"] = []string{strconv.FormatInt(roundUp(retry, time.Millisecond), 10)}
	}
	return trailer
}
