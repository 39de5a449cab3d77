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

// completions takes the ends of asynchronous requests out of the library's queue, in one goroutine that sleeps in Go's
// network poller, and hands each to the goroutine that waits for it.
type completions struct {
	queue   *C.processor_queue
	file    *os.File
	stopped chan struct{}

	mu      sync.Mutex
	nextTag uint64
	waiting map[uint64]chan completion
}

// completion is the end of one request; the receiver frees the result.
type completion struct {
	result *C.processor_result
	err    error
}

// completionsTaken is how many ends one call into the library takes.
const completionsTaken = 32

func newCompletions() (*completions, error) {
	c := &completions{stopped: make(chan struct{}), waiting: make(map[uint64]chan completion)}
	if err := answerError(C.shim_queue_create(&c.queue)); err != nil {
		return nil, err
	}
	// The queue keeps its descriptor: os.File closes the one that it is given.
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

// drain runs until the file is closed.
func (c *completions) drain(raw syscall.RawConn) {
	defer close(c.stopped)
	taken := (*C.processor_completion)(C.calloc(completionsTaken, C.sizeof_processor_completion))
	if taken == nil {
		panic("processor: no memory for completions")
	}
	defer C.free(unsafe.Pointer(taken))
	for {
		// The poller is told to wait only after the queue has been found empty, so no end is missed.
		err := raw.Read(func(uintptr) bool { return c.take(taken) > 0 })
		if err != nil {
			c.take(taken)
			return
		}
	}
}

// take hands on what waits in the queue, and returns how much that was.
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

// expect returns the tag of a new request and where its end will appear.
func (c *completions) expect() (uint64, <-chan completion) {
	done := make(chan completion, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nextTag++
	c.waiting[c.nextTag] = done
	return c.nextTag, done
}

// forget makes nobody wait for a request any more; false if its end has already been handed on.
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
