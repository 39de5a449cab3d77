// SPDX-License-Identifier: Apache-2.0

// Package processor serves TensorFlow SavedModels in-process, through libprocessor.so.
//
//	model, err := processor.Load("/models/ranking/7", processor.Config{"session_num": 4})
//	...
//	defer model.Close()
//	response, err := model.Process(ctx, "tfserving", request)
//
// The package finds header and library through CGO_CFLAGS and CGO_LDFLAGS, or through pkg-config with the build tag
// "pkgconfig"; docs/go.md says how.
//
// A call into C holds an OS thread until it returns. So no more requests enter C at once than the model has sessions to
// run them; the others wait in Go, in the order of their priority, and leave when their context ends. See Dispatch for
// the other way, through the library's own queue.
package processor

// #cgo !pkgconfig LDFLAGS: -lprocessor
// #cgo pkgconfig pkg-config: recprocessor
// #include "shim.h"
import "C"

import (
	"unsafe"
)

// Version returns the release of the library, as in "0.1.0".
func Version() string { return C.GoString(C.processor_version()) }

// BuildInfo returns what the library was built with and runs on, as JSON; see processor_build_info in processor.h.
func BuildInfo() string { return C.GoString(C.processor_build_info()) }

// Severity is a level of the log.
type Severity int32

// The levels of the log.
const (
	LogInfo    Severity = C.PROCESSOR_LOG_INFO
	LogWarning Severity = C.PROCESSOR_LOG_WARNING
	LogError   Severity = C.PROCESSOR_LOG_ERROR
)

// SetLogLevel drops the lines of the library's log below a severity (initially LogWarning). The log goes to stderr.
func SetLogLevel(least Severity) { C.processor_set_log_sink(nil, nil, C.int32_t(least)) }

// checkABI makes sure that the library that was found at run time is one that this package was compiled for.
func checkABI() error {
	const header = uint32(C.PROCESSOR_ABI_VERSION)
	library := uint32(C.processor_abi_version())
	if library>>16 != header>>16 || library&0xffff < header&0xffff {
		return failf(FailedPrecondition, "libprocessor.so: ABI version %d.%d, expected %d.%d or a later minor one",
			library>>16, library&0xffff, header>>16, header&0xffff)
	}
	return nil
}

// answerError takes the message out of a failed answer; nil for an answer that is none.
func answerError(answer C.shim_answer) error {
	if answer.status == C.PROCESSOR_OK {
		return nil
	}
	return takeError(answer.status, answer.message)
}

func takeError(status C.processor_status, message *C.char) error {
	text := "no memory for the message"
	if message != nil {
		text = C.GoString(message)
		C.free(unsafe.Pointer(message))
	}
	return &Error{Code: Code(status), Message: text}
}
