// SPDX-License-Identifier: Apache-2.0

package processor

// #include "host_shim.h"
import "C"

import (
	"strings"
	"sync/atomic"
	"time"
	"unsafe"
)

// Answer is what a host answered, and who it was.
type Answer struct {
	result *C.processor_result
	bytes  []byte // of the result

	// Model that the request was for; empty if it is not known.
	Model string
	// Version that answered, -1 if none did.
	Version int64
	// Arm says why that version did: "baseline", "arm", "pinned" or "fallback"; empty if none did.
	Arm string
	// Session that ran the request, -1 if none did, and the CPUs it runs on; "" for any.
	Session int
	CPUSet  string
	// Queue is the time that it waited, Run that inside TensorFlow, Total that from admission to the answer.
	Queue, Run, Total time.Duration
	// Work is the time on reading, running and writing it.
	Work time.Duration
	// BatchRows is how many rows the batch had that it was part of, 0 if it ran alone.
	BatchRows int
	// HeaderLength is how much of a response in "kserve_json" is JSON, if binary data follow; 0: all.
	HeaderLength int
	// RetryAfter is when a request that was refused may come again; 0 if that is not known.
	RetryAfter time.Duration
}

// Bytes returns the response, which lives until Free: it is the library's memory.
func (a *Answer) Bytes() []byte {
	if a == nil {
		return nil
	}
	return a.bytes
}

// Free gives the response's memory back. A second call does nothing; an answer that is nil has nothing to free.
func (a *Answer) Free() {
	if a == nil || a.result == nil {
		return
	}
	C.processor_result_free(a.result)
	a.result, a.bytes = nil, nil
}

// answerOf reads what the library wrote; nil if there is no result.
func (h *Host) answerOf(call *C.shim_host_call) *Answer {
	if call.result == nil {
		return nil
	}
	info := &call.info
	answer := &Answer{
		result:       call.result,
		Model:        h.names.text(info.model_name, call.model_name_size),
		Version:      int64(info.model_version),
		Arm:          h.names.text(info.arm, call.arm_size),
		Session:      int(info.session),
		CPUSet:       h.names.text(info.cpuset, call.cpuset_size),
		Queue:        time.Duration(info.queue_ns),
		Run:          time.Duration(info.run_ns),
		Total:        time.Duration(info.total_ns),
		Work:         time.Duration(info.decode_ns + info.run_ns + info.encode_ns),
		BatchRows:    int(info.batch_rows),
		HeaderLength: int(info.header_length),
		RetryAfter:   time.Duration(info.retry_after_us) * time.Microsecond,
	}
	if call.bytes != nil {
		answer.bytes = unsafe.Slice((*byte)(call.bytes), int(call.size))
	}
	return answer
}

// names keeps texts that come again and again, so that they are not made anew for each answer.
type names struct {
	known atomic.Pointer[map[string]string]
}

const mostNames = 4096

func (n *names) text(c *C.char, size C.uint32_t) string {
	if c == nil || size == 0 {
		return ""
	}
	view := unsafe.String((*byte)(unsafe.Pointer(c)), int(size))
	known := n.known.Load()
	if known != nil {
		if text, ok := (*known)[view]; ok {
			return text
		}
	}
	text := strings.Clone(view)
	more := map[string]string{text: text}
	if known != nil && len(*known) < mostNames {
		for name := range *known {
			more[name] = name
		}
	}
	n.known.Store(&more) // of two at once one is lost, and comes again
	return text
}
