// SPDX-License-Identifier: Apache-2.0

package processor

import (
	"hash/maphash"
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// pace remembers how long requests of a kind took, to tell the short ones: handing those to another thread would cost
// more than they take. A kind is what requests have in common that takes about the same time: the method, the model as it
// is named beside the bytes, the size to the power of two, and the first field of the bytes. That is the model's name, and
// in TensorFlow Serving's messages its version and signature: it is hashed, not read.
//
// Kinds share a table of fixed size: two in one place forget each other.
type pace struct{ entries [paceEntries]atomic.Uint64 }

const (
	paceEntries = 4096
	// What takes longer gains nothing by staying on the caller's thread.
	shortNanos = 1_000_000
	// A short request that took so long waited for something else than its own work: a busy session, a batch.
	blockedNanos = 5_000_000
	// How much a kind that was blocked, or is batched, counts as: it takes some hundred requests until it is short again.
	longNanos   = 1 << 30
	paceWeight  = 8 // an eighth of each new duration
	firstField  = 0x0a
	longestName = 128
)

var paceSeed = maphash.MakeSeed()

// kindOf hashes what makes a request's kind.
func kindOf(request *HostRequest) uint64 {
	data := request.Data
	first := data[:0]
	if len(data) > 1 && data[0] == firstField && data[1] < longestName {
		first = data[2:min(len(data), 2+int(data[1]))]
	}
	kind := maphash.Bytes(paceSeed, first)
	for _, text := range [...]string{request.Protocol, request.Method, request.Model} {
		kind = kind*31 + maphash.String(paceSeed, text)
	}
	return kind*31 + uint64(bits.Len(uint(len(data))))
}

// An entry has the upper half of the kind, and the average in nanoseconds; 0: nothing is known.
func (p *pace) short(kind uint64) bool {
	entry := p.entries[kind%paceEntries].Load()
	return entry>>32 == kind>>32 && entry != 0 && uint32(entry) < shortNanos
}

// refuse takes in that nobody knows how long the next request of a kind takes.
func (p *pace) refuse(kind uint64) {
	p.entries[kind%paceEntries].Store(kind&^math.MaxUint32 | longNanos)
}

// learn takes in how long a request took.
func (p *pace) learn(kind uint64, answer *Answer, direct bool) {
	if answer == nil || answer.Session < 0 {
		return
	}
	spent := uint64(min(max(answer.Work, 1), math.MaxInt32))
	switch {
	case answer.BatchRows > 0: // it waits for others, and a thread would wait with it
		spent = longNanos
	case direct && answer.Total > blockedNanos*time.Nanosecond:
		spent = longNanos
	}
	entry := &p.entries[kind%paceEntries]
	old := entry.Load()
	average := spent
	if old>>32 == kind>>32 && old != 0 && spent != longNanos {
		average = (uint64(uint32(old))*(paceWeight-1) + spent) / paceWeight
	}
	entry.Store(kind&^math.MaxUint32 | average)
}
