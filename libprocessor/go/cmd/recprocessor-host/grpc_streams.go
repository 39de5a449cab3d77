// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/recprocessor/recprocessor/libprocessor/go/processor"
)

var errStopping = status.Error(codes.Unavailable, "host: it is stopping")

// endStreams ends streams that would never end (health watches and open request streams) when the host stops.
func (s *grpcServer) endStreams(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if s.singles[info.FullMethod] {
		return handler(srv, stream) // which ends with its request
	}
	ctx, cancel := beforeDeadline(stream.Context())
	defer cancel()
	if info.FullMethod == "/"+inferenceService+"/"+streamMethod {
		return handler(srv, boundStream{stream, ctx}) // which ends between two requests
	}
	ended := make(chan error, 1)
	go func() { ended <- handler(srv, boundStream{stream, ctx}) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-s.stopping:
		return errStopping // a handler that reads or writes is told then that the stream is gone
	}
}

type boundStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s boundStream) Context() context.Context { return s.ctx }

// Field tags of ModelStreamInferResponse, both with a length.
const (
	fieldErrorMessage  protowire.Number = 1
	fieldInferResponse protowire.Number = 2
)

// inferStream responds to requests in order; a failed one gets its message.
func (s *grpcServer) inferStream(_ any, stream grpc.ServerStream) error {
	ctx := stream.Context()
	header, _ := metadata.FromIncomingContext(ctx)
	requests, failed := make(chan *rawRequest), make(chan error, 1)
	go func() {
		for {
			request := &rawRequest{}
			if err := stream.RecvMsg(request); err != nil {
				request.free()
				failed <- err
				return
			}
			select {
			case requests <- request:
			case <-ctx.Done(): // also when the handler has returned
				request.free()
				return
			}
		}
	}()
	crowded := time.NewTicker(time.Second)
	defer crowded.Stop()
	trailer := metadata.MD{}
	defer func() { stream.SetTrailer(trailer) }()
	for {
		select {
		case request := <-requests:
			var answer *processor.Answer
			err := request.unpack(s.most)
			if err == nil {
				answer, err = s.answer(ctx, operation{"kserve", "ModelInfer"}, header, request.bytes())
			}
			request.free()
			trailer = trailerOf(answer, nil)
			response := streamResponse(answer, err)
			answer.Free()
			if err := stream.SendMsg(response); err != nil {
				return err
			}
		case err := <-failed:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-crowded.C:
			if s.crowd.lasts() {
				return errCrowded.Err()
			}
		case <-s.stopping:
			return errStopping
		}
	}
}

func streamResponse(answer *processor.Answer, err error) rawResponse {
	field, data := fieldInferResponse, answer.Bytes()
	if err != nil {
		field, data = fieldErrorMessage, []byte(message(err))
	}
	response := make([]byte, 0, len(data)+protowire.SizeTag(field)+protowire.SizeVarint(uint64(len(data))))
	return protowire.AppendBytes(protowire.AppendTag(response, field, protowire.BytesType), data)
}
