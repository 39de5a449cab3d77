// SPDX-License-Identifier: Apache-2.0

package main

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip" // for clients that compress
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	"github.com/recprocessor/recprocessor/libprocessor/go/processor"
)

// rawRequest is a message that is left as it came; free gives its memory back.
type rawRequest struct{ buffer mem.Buffer }

func (r *rawRequest) bytes() []byte {
	if r.buffer == nil {
		return nil
	}
	return r.buffer.ReadOnlyData()
}

func (r *rawRequest) free() {
	if r.buffer != nil {
		r.buffer.Free()
		r.buffer = nil
	}
}

// rawResponse is a message that is sent as it is.
type rawResponse []byte

// codec passes raw messages through, and leaves every other one to the codec of protobuf: health and reflection have
// messages of their own.
type codec struct{ proto encoding.CodecV2 }

func newCodec() codec { return codec{proto: encoding.GetCodecV2(proto.Name)} }

func (c codec) Name() string { return proto.Name }

// What is larger is sent from the library's memory.
const largestCopy = 4096

func (c codec) Marshal(message any) (mem.BufferSlice, error) {
	switch raw := message.(type) {
	case *processor.Answer:
		bytes := raw.Bytes()
		if len(bytes) <= largestCopy {
			copied := mem.SliceBuffer(append(make([]byte, 0, len(bytes)), bytes...))
			raw.Free()
			return mem.BufferSlice{copied}, nil
		}
		return mem.BufferSlice{mem.NewBuffer(&bytes, answerOwner{raw})}, nil
	case rawResponse:
		return mem.BufferSlice{mem.SliceBuffer(raw)}, nil
	}
	return c.proto.Marshal(message)
}

func (c codec) Unmarshal(data mem.BufferSlice, message any) error {
	if raw, ok := message.(*rawRequest); ok {
		raw.buffer = data.MaterializeToBuffer(mem.DefaultBufferPool())
		return nil
	}
	return c.proto.Unmarshal(data, message)
}

// answerOwner frees an answer when its bytes have been sent: to gRPC it is the pool that they came from.
type answerOwner struct{ answer *processor.Answer }

func (a answerOwner) Get(length int) *[]byte {
	buffer := make([]byte, length)
	return &buffer
}

func (a answerOwner) Put(*[]byte) { a.answer.Free() }
