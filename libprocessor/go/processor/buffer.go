// SPDX-License-Identifier: Apache-2.0

package processor

// #cgo noescape shim_buffer_grow
// #cgo nocallback shim_buffer_grow
// #include "host_shim.h"
import "C"

import (
	"io"
	"sync"
	"unsafe"
)

// Buffer contains the bytes of one request. More than a few kilobytes are kept in memory of C, which is claimed from the
// budget of requests in flight before it is allocated. So a client cannot fill Go's heap, where a failed allocation ends
// the process. The zero value is empty; Free releases the memory.
type Buffer struct {
	small *[smallBuffer]byte // of Go's heap, until the bytes no longer fit
	base  unsafe.Pointer     // else of C's
	size  int
	room  int
}

const (
	smallBuffer  = 4096
	firstGrowth  = 65536
	leastFreeEnd = 512 // that a reader is offered
)

var smallBuffers = sync.Pool{New: func() any { return new([smallBuffer]byte) }}

// SetMaxRequestBytes sets the limit of the memory of requests in flight, for all hosts and models of the process. 0 sets
// the default, a tenth of the memory of the machine or the cgroup.
func SetMaxRequestBytes(bytes uint64) error {
	return answerError(C.shim_request_bytes_set_limit(C.uint64_t(bytes)))
}

// MaxRequestBytes returns the limit of the memory of requests in flight.
func MaxRequestBytes() uint64 { return uint64(C.processor_request_bytes_limit()) }

// Bytes returns the contents, which are valid until the buffer grows or is freed.
func (b *Buffer) Bytes() []byte { return b.all()[:b.size] }

// Len returns the number of bytes.
func (b *Buffer) Len() int { return b.size }

func (b *Buffer) all() []byte {
	switch {
	case b.base != nil:
		return unsafe.Slice((*byte)(b.base), b.room)
	case b.small != nil:
		return b.small[:]
	}
	return nil
}

// Reserve allocates memory for so many bytes in total. It fails with ResourceExhausted if budget or memory is short, and
// with InvalidArgument if the budget could never suffice.
func (b *Buffer) Reserve(room int) error {
	if room <= b.room {
		return nil
	}
	if room <= smallBuffer {
		b.small = smallBuffers.Get().(*[smallBuffer]byte)
		b.room = smallBuffer
		return nil
	}
	var failure C.processor_error
	base := C.shim_buffer_grow(b.base, C.size_t(b.claimed()), C.size_t(room), &failure)
	if base == nil {
		return &Error{Code: Code(failure.code), Message: C.GoString(&failure.message[0])}
	}
	kept := b.small
	if kept != nil {
		copy(unsafe.Slice((*byte)(base), room), kept[:b.size])
		smallBuffers.Put(kept)
		b.small = nil
	}
	b.base, b.room = base, room
	return nil
}

// claimed returns the bytes that are claimed from the budget.
func (b *Buffer) claimed() int {
	if b.base == nil {
		return 0
	}
	return b.room
}

// ReadUpTo reads to the end of a reader, or until there are `most` + 1 bytes. It fails as the reader does, or as Reserve.
func (b *Buffer) ReadUpTo(reader io.Reader, most int) error {
	for b.size <= most {
		if b.room-b.size < min(leastFreeEnd, most+1-b.size) {
			if err := b.Reserve(min(max(2*b.room, b.nextRoom()), most+1)); err != nil {
				return err
			}
		}
		all := b.all()
		n, err := reader.Read(all[b.size:min(len(all), most+1)])
		b.size += n
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *Buffer) nextRoom() int {
	if b.room == 0 {
		return smallBuffer
	}
	return firstGrowth
}

// Free releases the memory. A second call does nothing.
func (b *Buffer) Free() {
	if b.small != nil {
		smallBuffers.Put(b.small)
	}
	if b.base != nil {
		C.shim_buffer_free(b.base, C.size_t(b.room))
	}
	*b = Buffer{}
}
