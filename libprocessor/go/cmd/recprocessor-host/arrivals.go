// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const (
	// Calls are refused after this time if there is no room.
	patiencePeriod = 100 * time.Millisecond
	// Lists of waiting calls, so that connections on different CPUs rarely share a lock.
	arrivalLists = 16
)

var errLate = status.New(codes.DeadlineExceeded, context.DeadlineExceeded.Error())

var errCrowded = status.New(codes.ResourceExhausted,
	"request: not complete when those in flight filled their memory (max_request_bytes_in_flight)")

var crowdedTrailer = metadata.Pairs("grpc-retry-pushback-ms", strconv.FormatInt(crowdedRetry.Milliseconds(), 10))

// arrivals limits the time in which the requests of calls must arrive. One goroutine looks for all of them, because a timer
// and a channel for each call would cost more than most calls wait.
type arrivals struct {
	readTime time.Duration
	crowd    *crowd
	lists    [arrivalLists]arrivalList
}

// arrivalList has the waiting calls, the oldest first.
type arrivalList struct {
	mu          sync.Mutex
	first, last *arrival
	_           [40]byte // the rest of a cache line
}

// arrival is a call whose request has not arrived yet.
type arrival struct {
	list           *arrivalList
	begun          time.Time
	stream         transportStream
	previous, next *arrival
	refusal        *status.Status // why it no longer waits, if it was refused
}

// transportStream is gRPC's stream below that of a handler. A status that is written to it ends the call and the handler's
// read; gRPC ignores all later ones.
type transportStream interface {
	grpc.ServerTransportStream
	WriteStatus(*status.Status) error
}

func newArrivals(readTime time.Duration, crowd *crowd) *arrivals {
	a := &arrivals{readTime: readTime, crowd: crowd}
	go a.watch()
	return a
}

// receive reads the request of a call, unless the call is refused before it is there.
func (a *arrivals) receive(stream grpc.ServerStream, call *arrival, request *rawRequest) error {
	var known bool
	if call.stream, known = grpc.ServerTransportStreamFromContext(stream.Context()).(transportStream); !known {
		return stream.RecvMsg(request) // of another version of gRPC, in which calls cannot be refused early
	}
	call.begun = time.Now()
	call.list = &a.lists[rand.Uint32()%arrivalLists]
	call.list.add(call)
	err := stream.RecvMsg(request)
	if refusal := call.list.remove(call); refusal != nil {
		return refusal.Err()
	}
	return err
}

func (l *arrivalList) add(call *arrival) {
	l.mu.Lock()
	defer l.mu.Unlock()
	call.previous = l.last
	if l.last == nil {
		l.first = call
	} else {
		l.last.next = call
	}
	l.last = call
}

// remove ends the waiting of a call, and returns its refusal.
func (l *arrivalList) remove(call *arrival) *status.Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	if call.refusal == nil {
		l.unlink(call)
	}
	return call.refusal
}

func (l *arrivalList) unlink(call *arrival) {
	if call.previous == nil {
		l.first = call.next
	} else {
		call.previous.next = call.next
	}
	if call.next == nil {
		l.last = call.previous
	} else {
		call.next.previous = call.previous
	}
	call.previous, call.next = nil, nil
}

// refuseBefore takes out the calls that began before a time.
func (l *arrivalList) refuseBefore(limit time.Time, refusal *status.Status) []*arrival {
	l.mu.Lock()
	defer l.mu.Unlock()
	var refused []*arrival
	for call := l.first; call != nil && call.begun.Before(limit); call = l.first {
		call.refusal = refusal
		l.unlink(call)
		refused = append(refused, call)
	}
	return refused
}

// watch runs as long as the process, like the server that it belongs to.
func (a *arrivals) watch() {
	for now := range time.Tick(max(time.Millisecond, min(patiencePeriod/2, a.readTime/2))) {
		crowded := a.crowd.full()
		for i := range a.lists {
			refused := a.lists[i].refuseBefore(now.Add(-a.readTime), errLate)
			if crowded {
				refused = append(refused, a.lists[i].refuseBefore(now.Add(-patiencePeriod), errCrowded)...)
			}
			for _, call := range refused {
				call.end()
			}
		}
	}
}

// end tells the client why its call was refused. It fails only if the call has ended.
func (c *arrival) end() {
	if c.refusal == errCrowded {
		_ = c.stream.SetTrailer(crowdedTrailer)
	}
	_ = c.stream.WriteStatus(c.refusal)
}
