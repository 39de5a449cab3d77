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
// A call into C occupies an OS thread until it returns. So no more requests enter C at the same time than the model has
// sessions; the others wait in Go, ordered by priority, until their context ends. Dispatch describes the alternative, the
// library's own queue.
package processor

// #cgo !pkgconfig LDFLAGS: -lprocessor
// #cgo pkgconfig pkg-config: recprocessor
// #include "shim.h"
import "C"

import (
	"unsafe"
)

// Version returns the release of the library, for example "0.1.0".
func Version() string { return C.GoString(C.processor_version()) }

// BuildInfo describes the build of the library and its machine as JSON; see processor_build_info in processor.h.
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

// checkABI checks that the library that was found at run time has the ABI for which this package was compiled.
func checkABI() error {
	const header = uint32(C.PROCESSOR_ABI_VERSION)
	library := uint32(C.processor_abi_version())
	if library>>16 != header>>16 || library&0xffff < header&0xffff {
		return failf(FailedPrecondition, "libprocessor.so: ABI version %d.%d, expected %d.%d or a later minor one",
			library>>16, library&0xffff, header>>16, header&0xffff)
	}
	return nil
}

// answerError returns the error of a failed call; nil if it did not fail.
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
