// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

const (
	heapBeside    = 64 << 20 // what the program needs of Go's heap beside requests
	crowdPeriod   = 20 * time.Millisecond
	collectPeriod = 100 * time.Millisecond
	// How long open streams are kept while there is no room: the host cannot know whether they are idle or sending.
	streamPatience = 2 * time.Second
)

// crowd watches how much of Go's heap is in use. Requests over gRPC are there until they are complete, and their size is not
// known before. When they fill their share, calls whose request is not complete are refused. Large complete requests are
// in claimed memory.
type crowd struct {
	most  uint64
	there atomic.Bool
	since atomic.Int64 // when it became full, in nanoseconds since 1970; 0: it is not
	done  chan struct{}
}

// newCrowd gives incomplete requests half of the memory of all requests in flight, and limits the heap of Go's garbage
// collector to that.
func newCrowd(requestBytes uint64) *crowd {
	c := &crowd{most: requestBytes / 2, done: make(chan struct{})}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(int64(min(c.most+heapBeside, math.MaxInt64)))
	}
	go c.watch()
	return c
}

func (c *crowd) stop() { close(c.done) }

// full returns whether there is no room for incomplete requests.
func (c *crowd) full() bool { return c != nil && c.there.Load() }

// lasts returns whether there is still no room after late calls have been refused; then streams hold the rest.
func (c *crowd) lasts() bool {
	since := c.since.Load()
	return since != 0 && time.Now().UnixNano()-since > int64(streamPatience)
}

func (c *crowd) set(full bool) {
	c.there.Store(full)
	switch {
	case !full:
		c.since.Store(0)
	case c.since.Load() == 0:
		c.since.Store(time.Now().UnixNano())
	}
}

func (c *crowd) watch() {
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/heap/live:bytes"}}
	ticker := time.NewTicker(crowdPeriod)
	defer ticker.Stop()
	var collected time.Time
	for {
		select {
		case <-ticker.C:
		case <-c.done:
			return
		}
		metrics.Read(samples)
		objects, live := samples[0].Value.Uint64(), samples[1].Value.Uint64()
		c.set(live > c.most/4*3)
		// Unused objects count until they are collected.
		if (c.there.Load() || objects > c.most) && time.Since(collected) > collectPeriod {
			runtime.GC()
			collected = time.Now()
		}
	}
}
