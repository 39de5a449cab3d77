// SPDX-License-Identifier: Apache-2.0

package processor

// #include "shim.h"
import "C"

import (
	"context"
	"encoding/json"
	"math"
	"sync"
	"time"
	"unsafe"
)

// Config is the JSON object that configures a model; docs/configuration.md lists its keys.
type Config map[string]any

// Dispatch is the way in which requests get into the library.
type Dispatch int

const (
	// Auto is Direct for models that run requests on the caller's thread (execution "inline") and Async for those
	// with worker threads of their own ("pinned").
	Auto Dispatch = iota
	// Direct calls C from the goroutine of the request, which has the lowest latency. As many calls as the model has
	// sessions run at the same time; the others wait in Go. A caller waits for a running request even if its context ends.
	Direct
	// Async puts requests into the library's queue and receives their results through an eventfd. A request whose context
	// ends is cancelled there, and its caller returns at once even if the request is already running.
	Async
)

// Model is a loaded model. Its methods may be called from any number of goroutines at once, also while it is closed.
type Model struct {
	handle      *C.processor_model
	gate        *gate
	completions *completions // nil if dispatch is Direct
	closing     sync.Once
}

// Option is an option of Load.
type Option func(*loadOptions)

type loadOptions struct{ dispatch Dispatch }

// WithDispatch selects the dispatch of requests; the default is Auto.
func WithDispatch(dispatch Dispatch) Option { return func(o *loadOptions) { o.dispatch = dispatch } }

// Load loads the SavedModel in a folder, warms it up, and returns it when it is ready. The path may be empty if the
// configuration names the folder.
func Load(path string, config Config, options ...Option) (*Model, error) {
	if err := checkABI(); err != nil {
		return nil, err
	}
	chosen := loadOptions{}
	for _, option := range options {
		option(&chosen)
	}
	if err := checkText("path", path); err != nil {
		return nil, err
	}
	var cPath, cConfig *C.char
	if path != "" {
		cPath = C.CString(path)
		defer C.free(unsafe.Pointer(cPath))
	}
	if config != nil {
		text, err := json.Marshal(config)
		if err != nil {
			return nil, failf(InvalidArgument, "config: %v", err)
		}
		cConfig = C.CString(string(text))
		defer C.free(unsafe.Pointer(cConfig))
	}

	model := &Model{}
	var message *C.char
	if status := C.shim_load(cPath, cConfig, &model.handle, &message); status != C.PROCESSOR_OK {
		return nil, takeError(status, message)
	}
	if err := model.open(chosen.dispatch); err != nil {
		C.processor_model_free(model.handle)
		return nil, err
	}
	return model, nil
}

// open prepares the Go side of a loaded model.
func (m *Model) open(dispatch Dispatch) error {
	info, err := m.Info()
	if err != nil {
		return err
	}
	if dispatch == Auto {
		dispatch = Direct
		if info.Execution == "pinned" {
			dispatch = Async
		}
	}
	if dispatch == Async {
		m.gate = newGate(math.MaxInt, 0) // the library has its own queue, with its own bound
		m.completions, err = newCompletions()
		return err
	}
	m.gate = newGate(info.slots(), info.Config.number("max_queue_size", 1024))
	return nil
}

// Close frees the model: it refuses new requests, fails the waiting ones with Canceled, and waits for the running
// ones. A second call does nothing.
func (m *Model) Close() {
	m.closing.Do(func() {
		m.gate.close(failf(FailedPrecondition, "model: it has been closed"),
			failf(Canceled, "model: it was closed while the request waited"))
		C.processor_model_free(m.handle)
		_ = m.gate.wait(context.Background())
		if m.completions != nil {
			m.completions.close()
		}
	})
}

// Drain refuses new requests with Unavailable and waits until the admitted ones are complete or the context ends. The model
// continues to drain in the latter case.
func (m *Model) Drain(ctx context.Context) error {
	m.gate.drain(failf(Unavailable, "model: it is draining"))
	if err := m.gate.wait(ctx); err != nil {
		return err
	}
	deadline, err := deadlineOf(ctx)
	if err != nil {
		return err
	}
	return answerError(C.shim_drain(m.handle, deadline))
}

// SetCPUSet moves the sessions of the live model to other CPUs, with a group of CPUs for each session, for example
// "0-3;4-7"; "" means all CPUs that the process may use.
func (m *Model) SetCPUSet(cpuset string) error {
	if err := checkText("cpuset", cpuset); err != nil {
		return err
	}
	text := C.CString(cpuset)
	defer C.free(unsafe.Pointer(text))
	return answerError(C.shim_set_cpuset(m.handle, text))
}

// deadlineOf returns a context's deadline on the clock of the library, 0 for none.
func deadlineOf(ctx context.Context) (C.int64_t, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0, nil
	}
	left := time.Until(deadline)
	if left <= 0 {
		return 0, errPast()
	}
	return C.processor_now_us() + C.int64_t(left.Microseconds()), nil
}
