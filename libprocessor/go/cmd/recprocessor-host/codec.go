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

// rawRequest is a serialized message, decompressed but not decoded; free releases its memory.
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

// Larger messages are kept in claimed memory.
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

// unpack decompresses a message, and returns why a request cannot be processed.
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

// asItCame is a compressor for gRPC that compresses responses but does not decompress requests. gRPC would decompress them
// without regard to the memory budget; the codec does it piece by piece.
type asItCame struct{ encoding.Compressor }

func (asItCame) Decompress(reader io.Reader) (io.Reader, error) { return reader, nil }

func init() {
	encoding.RegisterCompressor(asItCame{encoding.GetCompressor("gzip")})
	encoding.RegisterCompressor(asItCame{deflate{}})
}

// deflate is the format of zlib, which gRPC calls "deflate".
type deflate struct{}

func (deflate) Name() string { return "deflate" }

func (deflate) Compress(writer io.Writer) (io.WriteCloser, error) { return zlib.NewWriter(writer), nil }

func (deflate) Decompress(reader io.Reader) (io.Reader, error) { return zlib.NewReader(reader) }

// isCompressed returns whether a message has the format of gzip or zlib. No request begins in the same way: the first byte of
// gzip would be a field with an invalid wire type, and that of zlib a field 15, which no request has.
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

// tooLargeRequest is the error of a request that must not be retried, unlike one for which memory is short.
type tooLargeRequest string

func (e tooLargeRequest) Error() string { return string(e) }

// inflate decompresses the formats that isCompressed recognizes.
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

// rawResponse is a serialized message.
type rawResponse []byte

// codec passes raw messages through. It leaves all other messages, those of health and reflection, to the codec of protobuf.
type codec struct {
	proto encoding.CodecV2
	most  int // bytes of a request
}

func newCodec(most int) codec { return codec{proto: encoding.GetCodecV2(proto.Name), most: most} }

func (c codec) Name() string { return proto.Name }

// Larger responses are sent from the library's memory.
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
	// A copy, because the decoded message may point into it.
	return c.proto.Unmarshal(mem.BufferSlice{mem.SliceBuffer(append([]byte(nil), inflated.Bytes()...))}, message)
}

// answerOwner frees an answer when its bytes have been sent. gRPC regards it as the pool that owns them.
type answerOwner struct{ answer *processor.Answer }

func (a answerOwner) Get(length int) *[]byte {
	buffer := make([]byte, length)
	return &buffer
}

func (a answerOwner) Put(*[]byte) { a.answer.Free() }
