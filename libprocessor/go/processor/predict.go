// SPDX-License-Identifier: Apache-2.0

package processor

// #include "shim.h"
import "C"

import (
	"context"
	"runtime"
	"time"
	"unsafe"
)

// Request is one request: either bytes in a protocol, or tensors.
type Request struct {
	// Protocol of Data, "tfserving" or "eas"; empty if the request has Inputs.
	Protocol string
	// Data is the serialized request.
	Data []byte
	// Inputs by alias in the signature or by tensor name in the graph.
	Inputs map[string]Tensor
	// Signature to run; empty: the one named in Data, else the default of the model.
	Signature string
	// Outputs to return; none: all.
	Outputs []string
	// Priority among waiting requests: larger is more urgent.
	Priority int32
}

// Response is the response to a request: Data if the request had Data, else Outputs.
type Response struct {
	Data    []byte
	Outputs map[string]Tensor
	Run     RunInfo
}

// RunInfo describes how a request was run.
type RunInfo struct {
	// Session that ran the request, -1 if none did.
	Session int
	// ModelVersion is -1 if the model has no number.
	ModelVersion int64
	// Generation is 1 after loading, and increases with each switch to a later checkpoint.
	Generation uint64
	// Queue is the time in the library's queue, without the time in the queue of this package.
	Queue, Decode, Execute, Encode time.Duration
}

// Process runs a serialized request of a protocol ("tfserving" or "eas").
func (m *Model) Process(ctx context.Context, protocol string, data []byte) ([]byte, error) {
	response, err := m.Predict(ctx, Request{Protocol: protocol, Data: data})
	return response.Data, err
}

// Run returns the named outputs, or all if none are named, for inputs by name.
func (m *Model) Run(ctx context.Context, inputs map[string]Tensor, outputs ...string) (map[string]Tensor, error) {
	response, err := m.Predict(ctx, Request{Inputs: inputs, Outputs: outputs})
	return response.Outputs, err
}

// Predict runs a request. The deadline of the context applies until the request starts to run, its cancellation as Dispatch
// describes.
func (m *Model) Predict(ctx context.Context, request Request) (Response, error) {
	if err := m.gate.enter(ctx, request.Priority); err != nil {
		return Response{}, err
	}
	defer m.gate.leave()
	deadline, err := deadlineOf(ctx)
	if err != nil {
		return Response{}, err
	}
	c, err := newCRequest(&request)
	if err != nil {
		return Response{}, err
	}
	var result *C.processor_result
	if m.completions != nil {
		result, err = m.runAsync(ctx, &request, c, deadline)
	} else {
		result, err = m.runDirect(&request, c, deadline)
	}
	if err != nil {
		return Response{}, err
	}
	defer C.processor_result_free(result)
	return newResponse(result), nil
}

func (m *Model) runDirect(request *Request, c *cRequest, deadline C.int64_t) (*C.processor_result, error) {
	defer c.free()
	answer := C.shim_run(m.handle, c.protocol, unsafe.Pointer(unsafe.SliceData(request.Data)),
		C.size_t(len(request.Data)), c.signature, c.inputs, C.size_t(len(request.Inputs)), c.outputs,
		C.size_t(len(request.Outputs)), deadline, C.int32_t(request.Priority))
	runtime.KeepAlive(request)
	return answer.result, answerError(answer)
}

func (m *Model) runAsync(ctx context.Context, request *Request, c *cRequest, deadline C.int64_t) (
	*C.processor_result, error) {
	tag, done := m.completions.expect()
	id := new(C.uint64_t)
	answer := C.shim_run_async(m.handle, m.completions.queue, C.uint64_t(tag), c.protocol,
		unsafe.Pointer(unsafe.SliceData(request.Data)), C.size_t(len(request.Data)), c.signature, c.inputs,
		C.size_t(len(request.Inputs)), c.outputs, C.size_t(len(request.Outputs)), deadline,
		C.int32_t(request.Priority), id)
	runtime.KeepAlive(request)
	c.free()
	if err := answerError(answer); err != nil {
		m.completions.forget(tag)
		return nil, err
	}
	select {
	case end := <-done:
		return end.result, end.err
	case <-ctx.Done():
	}
	cancelled := C.processor_model_cancel(m.handle, *id, nil) == C.PROCESSOR_OK
	if m.completions.forget(tag) {
		return nil, contextError(ctx, "before it was answered")
	}
	end := <-done // it ended in the same moment
	if cancelled {
		return nil, contextError(ctx, "before it was answered") // not what the library calls it: it knows no context
	}
	return end.result, end.err
}

func newResponse(result *C.processor_result) Response {
	contents := C.shim_look(result)
	response := Response{Run: RunInfo{
		Session:      int(contents.info.session),
		ModelVersion: int64(contents.info.model_version),
		Generation:   uint64(contents.info.generation),
		Queue:        time.Duration(contents.info.queue_ns),
		Decode:       time.Duration(contents.info.decode_ns),
		Execute:      time.Duration(contents.info.run_ns),
		Encode:       time.Duration(contents.info.encode_ns),
	}}
	if contents.is_bytes != 0 {
		response.Data = copyBytes(contents.data, contents.size)
		return response
	}
	response.Outputs = make(map[string]Tensor, contents.num_tensors)
	for i := C.size_t(0); i < contents.num_tensors; i++ {
		tensor := C.shim_tensor(result, i)
		response.Outputs[C.GoString(tensor.name)] = newOutput(&tensor)
	}
	return response
}

func copyBytes(data unsafe.Pointer, size C.size_t) []byte {
	return append(make([]byte, 0, size), unsafe.Slice((*byte)(data), size)...)
}

// newOutput copies a tensor of a result into Go memory.
func newOutput(src *C.processor_tensor) Tensor {
	tensor := Tensor{DType: DType(src.dtype)}
	tensor.Shape = append(tensor.Shape, unsafe.Slice((*int64)(unsafe.Pointer(src.dims)), src.rank)...)
	switch tensor.DType {
	case Float:
		tensor.Values = copyValues[float32](src)
	case Double:
		tensor.Values = copyValues[float64](src)
	case Int32:
		tensor.Values = copyValues[int32](src)
	case Uint8:
		tensor.Values = copyValues[uint8](src)
	case Int16:
		tensor.Values = copyValues[int16](src)
	case Int8:
		tensor.Values = copyValues[int8](src)
	case String:
		tensor.Values = copyStrings(src, tensor)
	case Complex64:
		tensor.Values = copyValues[complex64](src)
	case Int64:
		tensor.Values = copyValues[int64](src)
	case Bool:
		tensor.Values = copyValues[bool](src)
	case BFloat16, Uint16, Half:
		tensor.Values = copyValues[uint16](src)
	case Complex128:
		tensor.Values = copyValues[complex128](src)
	case Uint32:
		tensor.Values = copyValues[uint32](src)
	case Uint64:
		tensor.Values = copyValues[uint64](src)
	}
	return tensor
}

func copyValues[T any](src *C.processor_tensor) []T {
	var zero T
	values := make([]T, uintptr(src.size)/unsafe.Sizeof(zero))
	copy(view(values), unsafe.Slice((*byte)(src.data), src.size))
	return values
}

func copyStrings(src *C.processor_tensor, tensor Tensor) []string {
	count, _ := tensor.count()
	all := string(unsafe.Slice((*byte)(src.data), src.size))
	offsets := unsafe.Slice((*int64)(unsafe.Pointer(src.offsets)), count+1)
	values := make([]string, count)
	for i := range values {
		values[i] = all[offsets[i]:offsets[i+1]]
	}
	return values
}
