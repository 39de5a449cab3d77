// SPDX-License-Identifier: Apache-2.0

package processor

// #include "shim.h"
import "C"

import (
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// completions receives the completions of asynchronous requests from the library's queue, in one goroutine that sleeps in
// Go's network poller, and passes each to the goroutine that waits for it.
type completions struct {
	queue   *C.processor_queue
	file    *os.File
	stopped chan struct{}

	mu      sync.Mutex
	nextTag uint64
	waiting map[uint64]chan completion
}

// completion is the outcome of one request; the receiver frees the result.
type completion struct {
	result *C.processor_result
	err    error
}

// completionsTaken is the maximum number of completions that one call into the library returns.
const completionsTaken = 32

func newCompletions() (*completions, error) {
	c := &completions{stopped: make(chan struct{}), waiting: make(map[uint64]chan completion)}
	if err := answerError(C.shim_queue_create(&c.queue)); err != nil {
		return nil, err
	}
	// os.File closes its descriptor, so it gets a duplicate; the queue keeps the original.
	fd, err := syscall.Dup(int(C.processor_queue_fd(c.queue)))
	if err == nil {
		syscall.CloseOnExec(fd)
		err = syscall.SetNonblock(fd, true)
	}
	if err != nil {
		C.processor_queue_free(c.queue)
		return nil, failf(ResourceExhausted, "queue: its eventfd cannot be duplicated: %v", err)
	}
	c.file = os.NewFile(uintptr(fd), "processor_queue")
	raw, err := c.file.SyscallConn()
	if err != nil {
		c.file.Close()
		C.processor_queue_free(c.queue)
		return nil, failf(Internal, "queue: its eventfd cannot be polled: %v", err)
	}
	go c.drain(raw)
	return c, nil
}

// drain passes on completions until the file is closed.
func (c *completions) drain(raw syscall.RawConn) {
	defer close(c.stopped)
	taken := (*C.processor_completion)(C.calloc(completionsTaken, C.sizeof_processor_completion))
	if taken == nil {
		panic("processor: no memory for completions")
	}
	defer C.free(unsafe.Pointer(taken))
	for {
		// The poller waits only after the queue was found empty, so no completion is missed.
		err := raw.Read(func(uintptr) bool { return c.take(taken) > 0 })
		if err != nil {
			c.take(taken)
			return
		}
	}
}

// take passes on the completions in the queue, and returns their number.
func (c *completions) take(taken *C.processor_completion) int {
	total := 0
	for {
		count := int(C.processor_queue_next(c.queue, taken, completionsTaken))
		for i := range unsafe.Slice(taken, count) {
			c.deliver(&unsafe.Slice(taken, count)[i])
		}
		total += count
		if count < completionsTaken {
			return total
		}
	}
}

func (c *completions) deliver(src *C.processor_completion) {
	end := completion{result: src.result}
	if src.error.code != C.PROCESSOR_OK {
		end.err = &Error{Code: Code(src.error.code), Message: C.GoString(&src.error.message[0])}
	}
	c.mu.Lock()
	waiter, ok := c.waiting[uint64(src.tag)]
	delete(c.waiting, uint64(src.tag))
	c.mu.Unlock()
	if !ok { // its caller has left
		C.processor_result_free(end.result)
		return
	}
	waiter <- end
}

// expect returns the tag of a new request and the channel that will receive its completion.
func (c *completions) expect() (uint64, <-chan completion) {
	done := make(chan completion, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nextTag++
	c.waiting[c.nextTag] = done
	return c.nextTag, done
}

// forget stops the waiting for a request. It returns false if the completion was already passed on.
func (c *completions) forget(tag uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.waiting[tag]
	delete(c.waiting, tag)
	return ok
}

// close is called when the model has been freed and every caller has left.
func (c *completions) close() {
	c.file.Close()
	<-c.stopped
	C.processor_queue_free(c.queue)
}
