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

// Buffer holds the bytes of one request. What is more than a few kilobytes lies in memory of C, and is claimed from the
// budget of requests in flight before it is there: a client cannot fill Go's heap, where an allocation that fails ends
// the process. The zero value is empty; Free gives the memory back.
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

// SetMaxRequestBytes sets what requests in flight may hold together, of all hosts and models of the process; 0: the
// default, a tenth of the memory that the machine or the cgroup has.
func SetMaxRequestBytes(bytes uint64) error {
	return answerError(C.shim_request_bytes_set_limit(C.uint64_t(bytes)))
}

// MaxRequestBytes returns what requests in flight may hold together.
func MaxRequestBytes() uint64 { return uint64(C.processor_request_bytes_limit()) }

// Bytes are the contents, which live until the buffer grows or is freed.
func (b *Buffer) Bytes() []byte { return b.all()[:b.size] }

// Len is how many there are.
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

// Reserve makes room for so many bytes in all. It fails with ResourceExhausted if the budget or memory is short, and with
// InvalidArgument if the budget could never suffice.
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

// claimed is what the library knows of.
func (b *Buffer) claimed() int {
	if b.base == nil {
		return 0
	}
	return b.room
}

// ReadUpTo reads to the end of a reader, or until there are more than `most` bytes, of which one more is kept. It fails
// as the reader does, or as Reserve.
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

// Free gives the memory back. A second call does nothing.
func (b *Buffer) Free() {
	if b.small != nil {
		smallBuffers.Put(b.small)
	}
	if b.base != nil {
		C.shim_buffer_free(b.base, C.size_t(b.room))
	}
	*b = Buffer{}
}
