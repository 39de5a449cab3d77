// SPDX-License-Identifier: Apache-2.0

package processor

// #include "shim.h"
import "C"

import (
	"strings"
	"unsafe"
)

// alignment of the values, which allows the library to use them in place.
const alignment = 64

// arena is one block of C memory with the tensors of a request and everything that they point to. It needs one allocation
// and one copy, and nothing has to be pinned.
type arena struct {
	base unsafe.Pointer
	used uintptr
}

// take returns the next size bytes of the arena. If the arena has no memory yet, take only counts.
func (a *arena) take(size, align uintptr) unsafe.Pointer {
	start := (a.used + align - 1) &^ (align - 1)
	a.used = start + size
	if a.base == nil {
		return nil
	}
	return unsafe.Add(a.base, start)
}

func (a *arena) text(text string) *C.char {
	dst := a.take(uintptr(len(text))+1, 1)
	if dst == nil {
		return nil
	}
	bytes := unsafe.Slice((*byte)(dst), len(text)+1)
	copy(bytes, text)
	bytes[len(text)] = 0
	return (*C.char)(dst)
}

// cRequest is the part of a request that lies in an arena.
type cRequest struct {
	arena     arena
	protocol  *C.char
	signature *C.char
	inputs    *C.processor_tensor
	outputs   **C.char
}

// knownProtocols are the names that need no arena.
var knownProtocols = map[string]*C.char{"eas": C.CString("eas"), "tfserving": C.CString("tfserving")}

// newCRequest copies names and tensors of a request into C memory, to be freed by the caller. Request.Data is not
// among them: C borrows it from Go.
func newCRequest(request *Request) (*cRequest, error) {
	if known := knownProtocols[request.Protocol]; known != nil && request.Signature == "" &&
		len(request.Inputs) == 0 && len(request.Outputs) == 0 {
		return &cRequest{protocol: known}, nil
	}
	if err := checkText("protocol", request.Protocol); err != nil {
		return nil, err
	}
	if err := checkText("signature", request.Signature); err != nil {
		return nil, err
	}
	for _, output := range request.Outputs {
		if err := checkText("output", output); err != nil {
			return nil, err
		}
	}
	names := make([]string, 0, len(request.Inputs))
	for name, tensor := range request.Inputs {
		if err := checkText("input", name); err != nil {
			return nil, err
		}
		if err := checkTensor(name, tensor); err != nil {
			return nil, err
		}
		names = append(names, name)
	}

	counted := cRequest{}
	counted.lay(request, names)
	result := &cRequest{}
	size := (counted.arena.used + alignment) &^ (alignment - 1)
	if result.arena.base = C.aligned_alloc(alignment, C.size_t(size)); result.arena.base == nil {
		return nil, failf(ResourceExhausted, "request: no memory for its %d bytes", size)
	}
	result.lay(request, names)
	return result, nil
}

func (c *cRequest) free() {
	if c.arena.base != nil {
		C.free(c.arena.base)
	}
}

// lay is run twice: first to count the bytes, then to write them.
func (c *cRequest) lay(request *Request, names []string) {
	if request.Protocol != "" {
		c.protocol = c.arena.text(request.Protocol)
	}
	if request.Signature != "" {
		c.signature = c.arena.text(request.Signature)
	}
	if len(request.Outputs) > 0 {
		c.outputs = (**C.char)(c.arena.take(uintptr(len(request.Outputs))*unsafe.Sizeof(c.outputs), alignment))
		for i, output := range request.Outputs {
			text := c.arena.text(output)
			if c.outputs != nil {
				unsafe.Slice(c.outputs, len(request.Outputs))[i] = text
			}
		}
	}
	if len(names) > 0 {
		c.inputs = (*C.processor_tensor)(c.arena.take(uintptr(len(names))*C.sizeof_processor_tensor, alignment))
		for i, name := range names {
			tensor := c.arena.tensor(name, request.Inputs[name])
			if c.inputs != nil {
				unsafe.Slice(c.inputs, len(names))[i] = tensor
			}
		}
	}
}

func (a *arena) tensor(name string, tensor Tensor) C.processor_tensor {
	result := C.processor_tensor{
		struct_size: C.sizeof_processor_tensor,
		dtype:       C.int32_t(tensor.DType),
		name:        a.text(name),
		rank:        C.int32_t(len(tensor.Shape)),
	}
	dims := a.take(uintptr(len(tensor.Shape))*8, 8)
	if dims != nil {
		copy(unsafe.Slice((*int64)(dims), len(tensor.Shape)), tensor.Shape)
		result.dims = (*C.int64_t)(dims)
	}
	if values, ok := tensor.Values.([]string); ok {
		a.strings(values, &result)
		return result
	}
	src := bytesOf(tensor.Values)
	dst := a.take(uintptr(len(src)), alignment)
	if dst != nil {
		copy(unsafe.Slice((*byte)(dst), len(src)), src)
	}
	result.data, result.size = dst, C.size_t(len(src))
	return result
}

func (a *arena) strings(values []string, result *C.processor_tensor) {
	size := 0
	for _, value := range values {
		size += len(value)
	}
	offsets := a.take(uintptr(len(values)+1)*8, 8)
	data := a.take(uintptr(size), alignment)
	if a.base == nil {
		return
	}
	ends := unsafe.Slice((*int64)(offsets), len(values)+1)
	bytes := unsafe.Slice((*byte)(data), size)
	end := 0
	ends[0] = 0
	for i, value := range values {
		end += copy(bytes[end:], value)
		ends[i+1] = int64(end)
	}
	result.data, result.size, result.offsets = data, C.size_t(size), (*C.int64_t)(offsets)
}

// checkText refuses a text with a NUL, which C would truncate.
func checkText(what, text string) error {
	if strings.IndexByte(text, 0) >= 0 {
		return failf(InvalidArgument, "%s %q: it holds a zero byte, expected none", what, text)
	}
	return nil
}

// checkTensor checks that a tensor has as many values as its shape requires.
func checkTensor(name string, tensor Tensor) error {
	length, dtypes := describe(tensor.Values)
	known := false
	for _, dtype := range dtypes {
		known = known || dtype == tensor.DType
	}
	if !known {
		return failf(InvalidArgument, "input '%s': values %T do not make a tensor of dtype %d", name, tensor.Values,
			tensor.DType)
	}
	count, err := tensor.count()
	if err != nil || count != length {
		return failf(InvalidArgument, "input '%s': shape %v, expected one of %d elements", name, tensor.Shape, length)
	}
	return nil
}

// describe returns the number of values and the element types that they may have.
func describe(values any) (int, []DType) {
	switch v := values.(type) {
	case []float32:
		return len(v), []DType{Float}
	case []float64:
		return len(v), []DType{Double}
	case []int32:
		return len(v), []DType{Int32}
	case []uint8:
		return len(v), []DType{Uint8}
	case []int16:
		return len(v), []DType{Int16}
	case []int8:
		return len(v), []DType{Int8}
	case []string:
		return len(v), []DType{String}
	case []complex64:
		return len(v), []DType{Complex64}
	case []int64:
		return len(v), []DType{Int64}
	case []bool:
		return len(v), []DType{Bool}
	case []uint16:
		return len(v), []DType{Uint16, Half, BFloat16}
	case []complex128:
		return len(v), []DType{Complex128}
	case []uint32:
		return len(v), []DType{Uint32}
	case []uint64:
		return len(v), []DType{Uint64}
	}
	return 0, nil
}

// bytesOf returns the memory of a slice of numbers.
func bytesOf(values any) []byte {
	switch v := values.(type) {
	case []float32:
		return view(v)
	case []float64:
		return view(v)
	case []int32:
		return view(v)
	case []uint8:
		return v
	case []int16:
		return view(v)
	case []int8:
		return view(v)
	case []complex64:
		return view(v)
	case []int64:
		return view(v)
	case []bool:
		return view(v)
	case []uint16:
		return view(v)
	case []complex128:
		return view(v)
	case []uint32:
		return view(v)
	case []uint64:
		return view(v)
	}
	return nil
}

func view[T any](values []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), len(values)*int(unsafe.Sizeof(zero)))
}
