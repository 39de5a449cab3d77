// SPDX-License-Identifier: Apache-2.0

package main

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip" // for clients that compress
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// rawRequest is a message that is left as it came; free gives its memory back.
type rawRequest struct{ buffer mem.Buffer }

func (r *rawRequest) bytes() []byte { return r.buffer.ReadOnlyData() }

func (r *rawRequest) free() {
	if r.buffer != nil {
		r.buffer.Free()
	}
}

// rawResponse is a message that is sent as it is.
type rawResponse []byte

// codec passes raw messages through, and leaves every other one to the codec of protobuf: the health service of the
// same server has messages of its own.
type codec struct{ proto encoding.CodecV2 }

func newCodec() codec { return codec{proto: encoding.GetCodecV2(proto.Name)} }

func (c codec) Name() string { return proto.Name }

func (c codec) Marshal(message any) (mem.BufferSlice, error) {
	if raw, ok := message.(rawResponse); ok {
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
