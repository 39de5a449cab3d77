// SPDX-License-Identifier: Apache-2.0

package processor

import (
	"hash/maphash"
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// pace estimates how long requests of a kind take, because passing a short request to another thread would cost more than
// the request itself. A kind consists of the method, the model that is named beside the bytes, the size rounded to a power
// of two, and the first field of the bytes. That field has the name of the model and, in TensorFlow Serving's messages, its
// version and signature; it is only hashed.
//
// Kinds share a table of fixed size; two kinds in one place replace each other.
type pace struct{ entries [paceEntries]atomic.Uint64 }

const (
	paceEntries = 4096
	// A longer request gains nothing from staying on the caller's thread.
	shortNanos = 1_000_000
	// A short request that took so long must have waited, for example for a busy session or a batch.
	blockedNanos = 5_000_000
	// The duration of a kind that was blocked or is batched: it takes some hundred requests until it counts as short again.
	longNanos   = 1 << 30
	paceWeight  = 8 // an eighth of each new duration
	firstField  = 0x0a
	longestName = 128
)

var paceSeed = maphash.MakeSeed()

// kindOf returns the hash of the kind of a request.
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

// An entry has the upper half of the kind and the average in nanoseconds; 0: unknown.
func (p *pace) short(kind uint64) bool {
	entry := p.entries[kind%paceEntries].Load()
	return entry>>32 == kind>>32 && entry != 0 && uint32(entry) < shortNanos
}

// refuse records that the duration of the next request of a kind cannot be predicted.
func (p *pace) refuse(kind uint64) {
	p.entries[kind%paceEntries].Store(kind&^math.MaxUint32 | longNanos)
}

// learn records the duration of a request.
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
