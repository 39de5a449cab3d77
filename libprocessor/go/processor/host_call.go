// SPDX-License-Identifier: Apache-2.0

package processor

// #cgo noescape shim_host_process
// #cgo nocallback shim_host_process
// #cgo noescape shim_host_process_async
// #cgo nocallback shim_host_process_async
// #include "host_shim.h"
import "C"

import (
	"context"
	"math"
	"runtime"
	"strings"
	"sync"
	"unsafe"
)

// HostRequest is one request to a host: bytes of a protocol, and information beside them. What the bytes say about the
// model may be omitted here, and must not be contradicted.
type HostRequest struct {
	// Protocol and Method as in docs/model_host.md, for example "tfserving" and "Predict". Without a method, the first one
	// of the protocol is used.
	Protocol, Method string
	// Data is the serialized request, which is borrowed for the duration of the call.
	Data []byte
	// Model, Version and Label of the request; empty and 0: those in the bytes.
	Model   string
	Version int64
	Label   string
	// Metadata from gRPC metadata or HTTP headers; "x-routing-key" selects the arm of an experiment.
	Metadata []Pair
	// Priority among waiting requests: larger is more urgent.
	Priority int32
}

// Pair is a key and bytes.
type Pair struct{ Key, Value string }

// MaxPairs is the maximum number of metadata pairs of a request.
const MaxPairs = C.SHIM_MOST_PAIRS

// scratch is the memory of one call, which is kept for the next.
type scratch struct {
	call *C.shim_host_call // of C, since the library writes pointers into it
	text []byte
}

var scratches = sync.Pool{New: func() any {
	s := &scratch{call: (*C.shim_host_call)(C.calloc(1, C.sizeof_shim_host_call)), text: make([]byte, 0, 256)}
	if s.call == nil {
		panic("processor: no memory for a call")
	}
	runtime.SetFinalizer(s, func(s *scratch) { C.free(unsafe.Pointer(s.call)) })
	return s
}}

// fill describes a request.
func (s *scratch) fill(ctx context.Context, request *HostRequest) error {
	call := s.call
	s.text = s.text[:0]
	if len(request.Metadata) > MaxPairs {
		return failf(InvalidArgument, "metadata: %d pairs, expected at most %d", len(request.Metadata), MaxPairs)
	}
	total := 0
	for i := range request.Metadata {
		total += len(request.Metadata[i].Key) + len(request.Metadata[i].Value)
	}
	if total > math.MaxInt32 {
		return failf(InvalidArgument, "metadata: %d bytes, expected less than 2 GiB", total)
	}
	var err error
	if call.deadline_us, err = deadlineOf(ctx); err != nil {
		return err
	}
	put := func(what, text string) C.uint32_t {
		if strings.IndexByte(text, 0) >= 0 && err == nil {
			err = failf(InvalidArgument, "%s: it has a zero byte, expected none", what)
		}
		return s.add(text)
	}
	call.protocol = put("protocol", request.Protocol)
	call.method = put("method", request.Method)
	call.model = put("model", request.Model)
	call.label = put("version label", request.Label)
	for i := range request.Metadata {
		pair := &request.Metadata[i]
		call.pairs[i].key = put("metadata", pair.Key)
		call.pairs[i].value = s.add(pair.Value)
		call.pairs[i].value_size = C.uint32_t(len(pair.Value))
	}
	call.num_pairs = C.uint32_t(len(request.Metadata))
	call.model_version = C.int64_t(request.Version)
	call.priority = C.int32_t(request.Priority)
	return err
}

func (s *scratch) add(text string) C.uint32_t {
	place := len(s.text)
	s.text = append(append(s.text, text...), 0)
	return C.uint32_t(place)
}

// Process runs a request. After a failure, the Answer may be non-nil without bytes, with information about the version that
// refused the request. The caller must release it with Free.
//
// A request of a kind that is known to be short runs on the goroutine's thread, if its graph has no loops and fewer such
// requests run than there are CPUs. All others wait and run in the library without occupying a thread, also those that ask
// for an epoch by "x-min-epoch". When their context ends, Process returns at once, and the work stops at its next kernel.
func (h *Host) Process(ctx context.Context, request *HostRequest) (*Answer, error) {
	if err := h.calls.enter(ctx, 0); err != nil {
		return nil, err
	}
	defer h.calls.leave()
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	if err := s.fill(ctx, request); err != nil {
		return nil, err
	}
	kind := kindOf(request)
	if h.pace.short(kind) && !waitsForEpoch(request) && h.direct.take() {
		refused := C.shim_host_process(h.handle, s.call, (*C.char)(unsafe.Pointer(unsafe.SliceData(s.text))),
			unsafe.Pointer(unsafe.SliceData(request.Data)), C.size_t(len(request.Data)))
		runtime.KeepAlive(request)
		h.direct.giveBack()
		if !refused {
			answer := h.answerOf(s.call)
			h.pace.learn(kind, answer, true)
			if s.call.status != C.PROCESSOR_OK {
				return answer, &Error{Code: Code(s.call.status), Message: C.GoString(&s.call.error.message[0])}
			}
			return answer, nil
		}
		h.pace.refuse(kind)
	}
	end, err := h.processAsync(ctx, s, request)
	if err != nil {
		return nil, err
	}
	answer := h.finish(s.call, end)
	h.pace.learn(kind, answer, false)
	return answer, end.err
}

// minEpoch is the key of metadata by which a request asks for an epoch.
const minEpoch = "x-min-epoch"

// waitsForEpoch returns whether a request may have to wait for an epoch, which says nothing about its kind.
func waitsForEpoch(request *HostRequest) bool {
	for i := range request.Metadata {
		if strings.EqualFold(request.Metadata[i].Key, minEpoch) {
			return true
		}
	}
	return false
}

// processAsync starts a request and waits until it completes or the context ends.
func (h *Host) processAsync(ctx context.Context, s *scratch, request *HostRequest) (completion, error) {
	tag, done := h.completions.expect()
	if err := h.start(s, request, tag); err != nil {
		h.completions.forget(tag)
		return completion{}, err
	}
	id := uint64(s.call.id)
	select {
	case end := <-done:
		return end, nil
	case <-ctx.Done():
	}
	if h.Cancel(id) == nil { // its end comes at once, and says who would have answered
		end := <-done
		end.err = contextError(ctx, "before it was answered")
		return end, nil
	}
	if h.completions.forget(tag) {
		return completion{}, contextError(ctx, "before it was answered")
	}
	return <-done, nil // it ended in the same moment
}

func (h *Host) start(s *scratch, request *HostRequest, tag uint64) error {
	C.shim_host_process_async(h.handle, s.call, (*C.char)(unsafe.Pointer(unsafe.SliceData(s.text))),
		unsafe.Pointer(unsafe.SliceData(request.Data)), C.size_t(len(request.Data)), h.completions.queue, C.uint64_t(tag))
	runtime.KeepAlive(request)
	if s.call.status != C.PROCESSOR_OK {
		return &Error{Code: Code(s.call.status), Message: C.GoString(&s.call.error.message[0])}
	}
	return nil
}

// finish makes an answer of a completion.
func (h *Host) finish(call *C.shim_host_call, end completion) *Answer {
	call.status = C.processor_status(CodeOf(end.err))
	call.result = end.result
	C.shim_host_look(call)
	return h.answerOf(call)
}

// ProcessAsync starts a request and returns its number for Cancel. Unless it returns an error, the function is called once
// with what Process would have returned, in its own goroutine, possibly before ProcessAsync returns. The deadline of the
// context is passed on, but its cancellation is not: see Cancel.
func (h *Host) ProcessAsync(ctx context.Context, request *HostRequest, done func(*Answer, error)) (uint64, error) {
	if err := h.calls.enter(ctx, 0); err != nil {
		return 0, err
	}
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	tag, ended := h.completions.expect()
	err := s.fill(ctx, request)
	if err == nil {
		err = h.start(s, request, tag)
	}
	if err != nil {
		h.completions.forget(tag)
		h.calls.leave()
		return 0, err
	}
	id := uint64(s.call.id)
	go func() {
		defer h.calls.leave()
		end := <-ended
		s := scratches.Get().(*scratch)
		answer := h.finish(s.call, end)
		scratches.Put(s)
		done(answer, end.err)
	}()
	return id, nil
}

// Cancel ends a request of ProcessAsync with Canceled; a running one stops at its next kernel. It fails with NotFound if the
// request is complete or unknown.
func (h *Host) Cancel(id uint64) error {
	return answerError(C.shim_host_cancel(h.handle, C.uint64_t(id)))
}
