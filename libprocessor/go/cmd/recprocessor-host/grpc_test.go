// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/recprocessor/recprocessor/libprocessor/go/processor"
)

func TestCodecPassesRawMessagesAndEncodesOthers(t *testing.T) {
	c := newCodec(1 << 20)
	sent, err := c.Marshal(rawResponse("abc"))
	if err != nil || string(sent.Materialize()) != "abc" {
		t.Errorf("got %q (%v)", sent.Materialize(), err)
	}
	if sent, err := c.Marshal(&processor.Answer{}); err != nil || sent.Len() != 0 {
		t.Errorf("got %d bytes (%v) of an empty answer", sent.Len(), err)
	}
	request := rawRequest{}
	parts := mem.BufferSlice{mem.SliceBuffer("ab"), mem.SliceBuffer("c")}
	if err := c.Unmarshal(parts, &request); err != nil || string(request.bytes()) != "abc" {
		t.Errorf("got %q (%v)", request.bytes(), err)
	}
	request.free()
	empty := rawRequest{}
	if err := c.Unmarshal(nil, &empty); err != nil || len(empty.bytes()) != 0 {
		t.Errorf("got %q (%v) for an empty message", empty.bytes(), err)
	}
	empty.free()
	empty.free()
	encoded, err := c.Marshal(&grpc_health_v1.HealthCheckRequest{Service: "x"})
	decoded := grpc_health_v1.HealthCheckRequest{}
	if err != nil || c.Unmarshal(encoded, &decoded) != nil || decoded.Service != "x" {
		t.Errorf("got %v (%v)", &decoded, err)
	}
}

func TestCodecInflatesWithinItsLimits(t *testing.T) {
	c := newCodec(200_000)
	data := bytes.Repeat([]byte("abc"), 50_000)
	packed := gzipped(data)
	for _, compressed := range [][]byte{packed, deflated(data)} {
		parts := mem.BufferSlice{mem.SliceBuffer(compressed[:1]), mem.SliceBuffer(compressed[1:7]), mem.SliceBuffer(compressed[7:])}
		request := rawRequest{}
		if err := c.Unmarshal(parts, &request); err != nil || request.unpack(200_000) != nil || !bytes.Equal(request.bytes(), data) {
			t.Errorf("got %d bytes (%v, %v)", len(request.bytes()), err, request.err)
		}
		request.free()
	}
	for _, wrong := range []struct {
		data []byte
		code codes.Code
	}{
		{gzipped(make([]byte, 200_001)), codes.ResourceExhausted},
		{packed[:len(packed)-1], codes.InvalidArgument},
		{packed[:3], codes.InvalidArgument},
		{append(gzipped(data), "behind"...), codes.InvalidArgument},
		{deflated(make([]byte, 200_001)), codes.ResourceExhausted},
		{deflated(data)[:len(deflated(data))-1], codes.InvalidArgument},
		{append(deflated(data), "behind"...), codes.InvalidArgument},
	} {
		request := rawRequest{}
		if err := c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(wrong.data)}, &request); err != nil {
			t.Error(err)
		}
		if got := status.Code(grpcStatus(request.unpack(200_000))); got != wrong.code {
			t.Errorf("got %v (%v), expected %v", got, request.err, wrong.code)
		}
		request.free()
	}
	request := rawRequest{}
	large := mem.BufferSlice{mem.SliceBuffer(data), mem.SliceBuffer("end")}
	if err := c.Unmarshal(large, &request); err != nil || request.err != nil || len(request.bytes()) != len(data)+3 {
		t.Errorf("got %d bytes (%v, %v)", len(request.bytes()), err, request.err)
	}
	request.free()
	encoded, err := c.Marshal(&grpc_health_v1.HealthCheckRequest{Service: "x"})
	decoded := grpc_health_v1.HealthCheckRequest{}
	squeezed := mem.BufferSlice{mem.SliceBuffer(gzipped(encoded.Materialize()))}
	if err != nil || c.Unmarshal(squeezed, &decoded) != nil || decoded.Service != "x" {
		t.Errorf("got %v (%v)", &decoded, err)
	}
}

func TestDescriptorsHoldEveryMethod(t *testing.T) {
	files, err := descriptors()
	if err != nil {
		t.Fatal(err)
	}
	expect := func(service, method string) {
		found, err := files.FindDescriptorByName(protoreflect.FullName(service))
		if err != nil {
			t.Error(err)
			return
		}
		if found.(protoreflect.ServiceDescriptor).Methods().ByName(protoreflect.Name(method)) == nil {
			t.Errorf("%s/%s: not in services.binpb, run `make proto`", service, method)
		}
	}
	for service, table := range grpcMethods {
		for _, method := range table.methods {
			expect(service, method)
		}
	}
	expect(modelService, reloadMethod)
	expect(inferenceService, streamMethod)
	expect("grpc.health.v1.Health", "Check")
}

func TestStatusKeepsCodeAndMessage(t *testing.T) {
	got := status.Convert(grpcStatus(&processor.Error{Code: processor.NotFound, Message: "output 'a\xff': absent"}))
	if got.Code() != codes.NotFound || got.Message() != "output 'a?': absent" {
		t.Errorf("got %v", got)
	}
	if got := status.Code(grpcStatus(errors.New("x"))); got != codes.Unknown {
		t.Errorf("got %v, expected UNKNOWN", got)
	}
}

func TestHTTPStatuses(t *testing.T) {
	want := [...]int{200, 499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401}
	for code, status := range want {
		if got := httpStatus(processor.Code(code)); got != status {
			t.Errorf("%v: got %d, expected %d", processor.Code(code), got, status)
		}
	}
}

func TestParsePriority(t *testing.T) {
	for text, want := range map[string]int32{"3": 3, " -3": -3, "+2147483647": 2147483647} {
		if got, err := parsePriority(text); err != nil || got != want {
			t.Errorf("%q: got %d (%v)", text, got, err)
		}
	}
	for _, text := range []string{"", "high", "1e9", "2147483648", "1.0"} {
		if _, err := parsePriority(text); processor.CodeOf(err) != processor.InvalidArgument {
			t.Errorf("%q: got %v, expected INVALID_ARGUMENT", text, err)
		}
	}
}

func TestStreamResponse(t *testing.T) {
	long := bytes.Repeat([]byte("x"), 1000)
	got := streamResponse(nil, &processor.Error{Code: processor.NotFound, Message: string(long)})
	number, kind, size := protowire.ConsumeTag(got)
	text, rest := protowire.ConsumeBytes(got[size:])
	if number != fieldErrorMessage || kind != protowire.BytesType || !bytes.Equal(text, long) || size+rest != len(got) {
		t.Errorf("got %q", got)
	}
}

func TestRefusal(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		code   codes.Code
		text   string
	}{
		{401, `{"error": {"status": "UNAUTHENTICATED", "message": "token"}}`, codes.Unauthenticated, "token"},
		{409, `{"status": "ABORTED", "message": "busy"}`, codes.Aborted, "busy"},
		{500, `{"status": "NONSENSE", "message": "what"}`, codes.Unknown, "what"},
		{404, "no JSON", codes.NotFound, "proxy: HTTP status 404"},
		{502, "[]", codes.Unavailable, "proxy: HTTP status 502"},
	} {
		got := status.Convert(refusal(c.status, []byte(c.body)))
		if got.Code() != c.code || got.Message() != c.text {
			t.Errorf("%d %s: got %v, expected %v %q", c.status, c.body, got, c.code, c.text)
		}
	}
}
