// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip" // for clients that compress
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	"github.com/recprocessor/recprocessor/libprocessor/go/processor"
)

// rawRequest is a message that is left as it came, but inflated; free gives its memory back.
type rawRequest struct {
	buffer mem.Buffer       // of gRPC: a small one
	large  processor.Buffer // else
	packed bool             // still compressed
	err    error            // why it cannot be answered
}

func (r *rawRequest) bytes() []byte {
	if r.buffer != nil {
		return r.buffer.ReadOnlyData()
	}
	return r.large.Bytes()
}

func (r *rawRequest) free() {
	if r.buffer != nil {
		r.buffer.Free()
		r.buffer = nil
	}
	r.large.Free()
}

// What is larger lies in memory that is claimed.
const largestUnclaimed = 65536

func (r *rawRequest) take(data mem.BufferSlice, most int) {
	r.packed = isCompressed(data)
	if data.Len() <= largestUnclaimed {
		r.buffer = data.MaterializeToBuffer(mem.DefaultBufferPool())
		return
	}
	reader := data.Reader()
	defer reader.Close()
	if r.err = r.large.Reserve(data.Len() + 1); r.err == nil {
		r.err = r.large.ReadUpTo(reader, most)
	}
}

// unpack inflates what came compressed, and says why a request cannot be answered.
func (r *rawRequest) unpack(most int) error {
	if r.err != nil || !r.packed {
		return r.err
	}
	r.packed = false
	var inflated processor.Buffer
	r.err = inflate(bytes.NewReader(r.bytes()), most, &inflated)
	r.free()
	r.large = inflated
	return r.err
}

// asItCame is a compressor for gRPC that compresses answers, but leaves requests as they came. gRPC would inflate them
// before anybody could say how much memory there is; the codec does that, piece by piece.
type asItCame struct{ encoding.Compressor }

func (asItCame) Decompress(reader io.Reader) (io.Reader, error) { return reader, nil }

func init() {
	encoding.RegisterCompressor(asItCame{encoding.GetCompressor("gzip")})
	encoding.RegisterCompressor(asItCame{deflate{}})
}

// deflate is what gRPC calls so: the format of zlib.
type deflate struct{}

func (deflate) Name() string { return "deflate" }

func (deflate) Compress(writer io.Writer) (io.WriteCloser, error) { return zlib.NewWriter(writer), nil }

func (deflate) Decompress(reader io.Reader) (io.Reader, error) { return zlib.NewReader(reader) }

// isCompressed says whether a message is one of gzip or zlib, which no request begins like: the first byte of gzip would
// be a field of a wire type that does not exist, that of zlib a field 15, which no request has.
func isCompressed(data mem.BufferSlice) bool {
	var head []byte
	for _, part := range data {
		head = append(head, part.ReadOnlyData()[:min(part.Len(), 2-len(head))]...)
		if len(head) == 2 {
			return isGzip(head) || isZlib(head)
		}
	}
	return false
}

func isGzip(head []byte) bool { return head[0] == 0x1f && head[1] == 0x8b }

func isZlib(head []byte) bool { return head[0] == 0x78 && (int(head[0])<<8|int(head[1]))%31 == 0 }

// tooLargeRequest is a request that may never come again, unlike one for which memory is short.
type tooLargeRequest string

func (e tooLargeRequest) Error() string { return string(e) }

// inflate undoes what isCompressed knows.
func inflate(packed io.Reader, most int, buffer *processor.Buffer) error {
	reader := bufio.NewReader(packed)
	head, err := reader.Peek(2)
	var unpacked io.Reader
	switch {
	case err != nil:
	case isZlib(head):
		unpacked, err = zlib.NewReader(reader)
	default:
		var unzip *gzip.Reader
		if unzip, err = gzip.NewReader(reader); err == nil {
			unzip.Multistream(false)
			unpacked = unzip
		}
	}
	if err == nil {
		err = buffer.ReadUpTo(unpacked, most)
	}
	switch {
	case isOfMemory(err):
		return err
	case err != nil:
		return invalid(fmt.Sprintf("request: %v, expected what its grpc-encoding says", err))
	case buffer.Len() > most:
		return tooLargeRequest(fmt.Sprintf("request: too large, expected at most %d bytes", most))
	}
	if _, err := reader.ReadByte(); err != io.EOF {
		return invalid("request: bytes behind its compressed data, expected what its grpc-encoding says")
	}
	return nil
}

// rawResponse is a message that is sent as it is.
type rawResponse []byte

// codec passes raw messages through, and leaves every other one to the codec of protobuf: health and reflection have
// messages of their own.
type codec struct {
	proto encoding.CodecV2
	most  int // bytes of a request
}

func newCodec(most int) codec { return codec{proto: encoding.GetCodecV2(proto.Name), most: most} }

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
		raw.take(data, c.most)
		return nil
	}
	if !isCompressed(data) {
		return c.proto.Unmarshal(data, message)
	}
	var inflated processor.Buffer
	defer inflated.Free()
	reader := data.Reader()
	defer reader.Close()
	if err := inflate(reader, largestUnclaimed, &inflated); err != nil {
		return err
	}
	// Its own copy: what is unmarshalled may point into it.
	return c.proto.Unmarshal(mem.BufferSlice{mem.SliceBuffer(append([]byte(nil), inflated.Bytes()...))}, message)
}

// answerOwner frees an answer when its bytes have been sent: to gRPC it is the pool that they came from.
type answerOwner struct{ answer *processor.Answer }

func (a answerOwner) Get(length int) *[]byte {
	buffer := make([]byte, length)
	return &buffer
}

func (a answerOwner) Put(*[]byte) { a.answer.Free() }
