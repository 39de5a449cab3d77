// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
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
		raw, err := begun.receive(stream)
		// Also if the request is complete but the call is not.
		defer raw.free()
		if err != nil {
			// The context is not canceled here, because a read that still waits would send CANCELLED before gRPC sends this
			// status. gRPC cancels it with the stream.
			return err
		}
		defer begun.end()
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

// begunCall is the context of a call whose request has not arrived yet.
type begunCall struct {
	context.Context
	end     context.CancelFunc
	header  metadata.MD
	timer   *time.Timer
	state   atomic.Int32
	refused chan struct{} // closed when it is
}

// The states of a begun call.
const (
	waitsForRequest int32 = iota
	hasRequest
	refusedLate
	refusedCrowded
)

// The longest interval between two checks.
const patiencePeriod = 100 * time.Millisecond

var errCrowded = status.Error(codes.ResourceExhausted,
	"request: not complete when those in flight filled their memory (max_request_bytes_in_flight)")

var crowdedTrailer = metadata.Pairs("grpc-retry-pushback-ms", strconv.FormatInt(crowdedRetry.Milliseconds(), 10))

// receive waits for the request or the refusal of the call.
//
// A failed read writes its own status, which would hide that of the refusal. So the read continues in the background and
// ends with the call.
func (c *begunCall) receive(stream grpc.ServerStream) (*rawRequest, error) {
	raw, received := &rawRequest{}, make(chan error)
	go func() {
		err := stream.RecvMsg(raw)
		select {
		case received <- err:
		case <-c.refused:
			raw.free()
		}
	}()
	select {
	case err := <-received:
		arrived := c.arrive() // which also stops the timer of a call that has failed
		switch {
		case errors.Is(err, io.EOF):
			return raw, status.Error(codes.InvalidArgument, "request: none came, expected one message")
		case err != nil:
			return raw, err
		case !arrived:
			return raw, c.refuse(stream)
		}
		return raw, nil
	case <-c.refused:
		return &rawRequest{}, c.refuse(stream)
	}
}

// arrive returns whether the request arrived in time.
func (c *begunCall) arrive() bool {
	arrived := c.state.CompareAndSwap(waitsForRequest, hasRequest)
	c.timer.Stop()
	return arrived
}

func (c *begunCall) refuse(stream grpc.ServerStream) error {
	if c.state.Load() == refusedCrowded {
		stream.SetTrailer(crowdedTrailer)
		return errCrowded
	}
	return status.Error(codes.DeadlineExceeded, context.DeadlineExceeded.Error())
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

// begin limits the time in which the request of a call must arrive.
func (s *grpcServer) begin(ctx context.Context, info *tap.Info) (context.Context, error) {
	if !s.singles[info.FullMethodName] {
		return ctx, nil
	}
	ctx, end := beforeDeadline(ctx)
	call := &begunCall{Context: ctx, end: end, header: info.Header, refused: make(chan struct{})}
	until := time.Now().Add(s.readTime)
	look := func() {
		refused := waitsForRequest
		switch {
		case time.Until(until) <= 0:
			refused = refusedLate
		case s.crowd.full():
			refused = refusedCrowded
		}
		switch {
		case refused == waitsForRequest:
			if call.state.Load() == waitsForRequest {
				call.timer.Reset(min(patiencePeriod, time.Until(until)))
			}
		case call.state.CompareAndSwap(waitsForRequest, refused):
			close(call.refused)
		}
	}
	call.timer = time.AfterFunc(time.Hour, look)
	call.timer.Reset(min(patiencePeriod, s.readTime))
	return call, nil
}

// answer passes a message and its metadata to the library.
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

// trailerOf returns trailing metadata that names the version that responded, and the time after which a refused client may
// retry.
func trailerOf(answer *processor.Answer, err error) metadata.MD {
	trailer := make(metadata.MD, 8)
	provenance(answer, func(name, value string) { trailer[name] = []string{value} })
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
