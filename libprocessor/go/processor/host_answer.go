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

// Answer holds the response of a host and describes the version that ran the request.
type Answer struct {
	result *C.processor_result
	bytes  []byte // of the result

	// Model that the request was for; empty if it is not known.
	Model string
	// Version that ran the request, -1 if none did.
	Version int64
	// Arm is the reason for the choice of the version: "baseline", "arm", "pinned" or "fallback"; empty without a version.
	Arm string
	// Session that ran the request, -1 if none did, and its CPUs; "" for all CPUs.
	Session int
	CPUSet  string
	// Queue is the waiting time, Run the time in TensorFlow, Total the time from admission to the response.
	Queue, Run, Total time.Duration
	// Work is the time of decoding, running and encoding.
	Work time.Duration
	// BatchRows is the number of rows of the batch of the request, 0 if it ran alone.
	BatchRows int
	// HeaderLength is the size of the JSON in a response of "kserve_json" with binary data behind it; 0: all is JSON.
	HeaderLength int
	// Epoch of the timeline that the version follows, -1 if it follows none.
	Epoch int64
	// Age is the time since the newest sample that the epoch knows of, -1 ns if that is not known.
	Age time.Duration
	// RetryAfter is the time after which a refused request may be sent again; 0 if it is not known.
	RetryAfter time.Duration
}

// Bytes returns the response. It is the library's memory, which is valid until Free.
func (a *Answer) Bytes() []byte {
	if a == nil {
		return nil
	}
	return a.bytes
}

// Free releases the memory of the response. A second call, or one on nil, does nothing.
func (a *Answer) Free() {
	if a == nil || a.result == nil {
		return
	}
	C.processor_result_free(a.result)
	a.result, a.bytes = nil, nil
}

// answerOf converts a result of the library; it returns nil if there is none.
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
		Epoch:        int64(info.epoch),
		Age:          -1,
	}
	if info.age_us >= 0 {
		answer.Age = time.Duration(info.age_us) * time.Microsecond
	}
	if call.bytes != nil {
		answer.bytes = unsafe.Slice((*byte)(call.bytes), int(call.size))
	}
	return answer
}

// names caches repeated texts, so that they are not allocated for each answer.
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
