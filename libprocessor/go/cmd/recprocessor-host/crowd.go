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
	// How long streams stand open while there is no room: whether they are idle or bring a request nobody knows.
	streamPatience = 2 * time.Second
)

// crowd watches how much of Go's heap is in use. Requests that come over gRPC lie there until they are complete, before
// anybody knows how large they will be; when they fill their share, calls that have still to bring their request are
// refused. Complete requests that are large lie in memory that is claimed.
type crowd struct {
	most  uint64
	there atomic.Bool
	since atomic.Int64 // when it became full, in nanoseconds since 1970; 0: it is not
	done  chan struct{}
}

// newCrowd gives requests that are coming in half of the memory of all requests in flight, and has Go's collector keep
// its heap to that.
func newCrowd(requestBytes uint64) *crowd {
	c := &crowd{most: requestBytes / 2, done: make(chan struct{})}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(int64(min(c.most+heapBeside, math.MaxInt64)))
	}
	go c.watch()
	return c
}

func (c *crowd) stop() { close(c.done) }

// full says whether there is no room for requests that are not complete.
func (c *crowd) full() bool { return c != nil && c.there.Load() }

// lasts says whether it goes on although calls that are late have been refused: what is left is in streams.
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
		// Objects that nobody uses any more count until they are collected.
		if (c.there.Load() || objects > c.most) && time.Since(collected) > collectPeriod {
			runtime.GC()
			collected = time.Now()
		}
	}
}
